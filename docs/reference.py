"""Pages of the API from docstrings: the directive `public-names` documents what a module offers.

    .. public-names:: shardwise.numpy

Public are the names of `__all__`, else those that the module defines or imports as themselves (`from x import y as y`), without the
modules among them. An entry has the signature and the docstring; a name of NumPy's says where it comes from.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util.docutils import SphinxDirective

from shardwise.base import listing

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_CODE = re.compile(r"(`+[^`]*`+)")


def public_names(module: ModuleType) -> list[str]:
    """What a module offers, sorted."""
    later = "__getattr__" in vars(module)  # it imports names when they are first asked for
    if later and not hasattr(module, "__all__"):
        return [name for name in dir(module) if not name.startswith("_")]
    return listing.public_names(module.__name__)


def objects(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public names with their values, without modules and plain constants."""
    for name in public_names(module):
        try:
            value = getattr(module, name)
        except (AttributeError, ImportError):  # of the other era, or of a library that is not installed
            continue
        if not isinstance(value, ModuleType) and (
            callable(value) or inspect.getdoc(value) != inspect.getdoc(type(value))
        ):
            yield name, value


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = _ADDRESS.sub("", str(inspect.Signature(bare)))
    return text if "\n" not in text else "(...)"


def _plain(line: str) -> str:
    """Stars and bars as they are: docstrings write `f[*shape]` and |x|, and no emphasis."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = _CODE.split(line)
    return "".join(part if part.startswith("`") else re.sub(r"([*|])", r"\\\1", part) for part in parts)


class PublicNames(SphinxDirective):
    """The directive: its argument is the module."""

    required_arguments = 1
    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """The documentation of the module and of each of its names."""
        module = importlib.import_module(self.arguments[0])
        lines = [f".. py:module:: {module.__name__}", "", *self._text(module), ""]
        for name, value in objects(module):
            lines += [*self._entry(module.__name__, name, value), ""]
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(StringList(lines, source=str(module.__file__)), self.content_offset, node)
        return node.children

    def _text(self, value: Any) -> list[str]:
        text = "\n".join(_plain(line) for line in (inspect.getdoc(value) or "").splitlines())
        return GoogleDocstring(text, self.config).lines()

    def _entry(self, module: str, name: str, value: Any) -> list[str]:
        origin = getattr(value, "__module__", "") or ""
        if not origin.startswith("shardwise"):
            return [f".. py:data:: {name}", f"   :module: {module}", "", f"   ``{origin}.{name}``", ""]
        kind = "class" if inspect.isclass(value) else "function"
        body = [f".. py:{kind}:: {name}{_signature(value)}", f"   :module: {module}", ""]
        return [*body, *("   " + line for line in self._text(value))]


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known to Sphinx."""
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True}
