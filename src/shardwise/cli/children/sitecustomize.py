"""Run by Python as it starts in the children of a program under `shardwise run`: there, too, `import jax` means shardwise.

The folder of this file stands first in PYTHONPATH, and Python imports `sitecustomize` from there. It costs a child next to nothing
until `jax` is imported. A `sitecustomize` that the child would have had otherwise runs as well. Children that run another
Python (`sys.prefix`) are left alone.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _ImportHook(importlib.abc.MetaPathFinder):
    """Makes `jax` mean shardwise at its first import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ("jax", "jaxlib"):
            return None
        sys.meta_path.remove(self)
        from shardwise import alias  # start-up time: of children that never import jax

        alias.install()
        del sys.modules["jax"]  # a module that appears while it is looked for would be run once more
        finder = sys.meta_path[0]  # the finder just installed
        return finder.find_spec(fullname, path, target)


def _next() -> None:
    """Run the `sitecustomize` that this one hides, as the module of that name."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
if os.environ.get("SHARDWISE_RUN_PREFIX") == sys.prefix:
    sys.meta_path.insert(0, _ImportHook())
_next()
