"""`shardwise help`: the meaning of an error and its remedy: a page of docs/errors, which wheels have beside this file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from shardwise.base.nearest import did_you_mean
from shardwise.cli.program import UsageError

NAME = "help"


def register(commands: Any) -> None:
    """Add the command `help` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="what an error means and what to do",
        description="Print the page on an error. The report of an error that nobody catches names it.",
        usage="shardwise help [TOPIC]",
        allow_abbrev=False,
    )
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="the page; without it they are listed")
    parser.set_defaults(carry_out=_carry_out, parser=parser)


def pages() -> dict[str, tuple[str, str]]:
    """Title and text of each page by its topic."""
    beside, in_checkout = Path(__file__).with_name("errors"), Path(__file__).parents[3] / "docs" / "errors"
    page_by_name: dict[str, tuple[str, str]] = {}
    for file in sorted((beside if beside.exists() else in_checkout).glob("*.md")):
        title, _, text = file.read_text(encoding="utf-8").partition("\n")
        page_by_name[file.stem] = (title.removeprefix("# "), text.strip())
    return page_by_name


def _carry_out(options: argparse.Namespace) -> int:
    known_pages = pages()
    if options.topic is None:
        width = max(map(len, known_pages))
        print("\n".join(f"{topic:{width}}  {title}" for topic, (title, _) in known_pages.items()))
        return 0
    if options.topic not in known_pages:
        raise UsageError(
            f"there is no topic {options.topic!r}.{did_you_mean(options.topic, known_pages)} `shardwise help` lists them."
        )
    title, text = known_pages[options.topic]
    print(f"{title}\n{'=' * len(title)}\n\n{text}")
    return 0
