"""How Sphinx makes the site from this folder: `pip install -e '.[docs]' && python -m sphinx -W docs site`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # reference.py

project = "shardwise"
author = "the shardwise authors"
copyright = author

extensions = ["myst_parser", "sphinx.ext.napoleon", "reference"]
exclude_patterns = ["README.md"]
default_role = "code"
suppress_warnings = ["ref.python"]  # names that two modules offer, as JAX's do
myst_heading_anchors = 3
html_theme = "furo"
html_title = "shardwise"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]


def setup(app: Any) -> None:
    """Let the messages on the pages of errors break into lines."""

    def add_style(app: Any, name: str, *_: Any) -> None:
        if name.startswith("errors/"):
            app.add_css_file("messages.css")

    app.connect("html-page-context", add_style)
