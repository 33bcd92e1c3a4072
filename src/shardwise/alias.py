"""`import jax` means shardwise: for programs that are to run unchanged.

After `install()`, `jax` and every public `jax.*` module are the very module objects of shardwise, so that
`jax.Array is shardwise.Array` whichever name an import used. What shardwise keeps no counterpart of says so:
`jaxlib` but for its classes and the names of MLIR, all but a few modules of `jax._src`, and those that shardwise lacks raise
`ModuleNotFoundError` with a reason.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from shardwise.base import config
from shardwise.base.gone import why_absent
from shardwise.base.listing import listing as _listing

TARGET: Final = __name__.partition(".")[0]

# First parts of the module names that JAX documents; shardwise's other packages stay invisible to `jax.*`.
PUBLIC: Final = frozenset(
    "_src ad_checkpoint api_util core custom_batching custom_derivatives custom_transpose debug distributed dlpack dtypes "
    "errors example_libraries experimental export extend ffi flatten_util image interpreters lax lib monitoring nn numpy "
    "ops profiler random ref scipy sharding stages test_util tree tree_util typing util version".split()
)
_INTERNAL: Final = frozenset({"cloud_tpu_init", "collect_profile", "tools"})


def install() -> ModuleType:
    """Make `import jax` find shardwise in this process; returns the module. Doing it again changes nothing.

    Raises:
        RuntimeError: the real JAX is imported already; two array libraries under one name cannot work.

    >>> import subprocess, sys
    >>> program = "import shardwise.alias; shardwise.alias.install(); import jax; print(jax.__name__)"
    >>> print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)
    shardwise
    """
    root = importlib.import_module(TARGET)
    loaded_module = sys.modules.get("jax")
    if loaded_module is not None and loaded_module is not root:
        origin = getattr(loaded_module, "__file__", None) or "an unknown place"
        raise RuntimeError(
            f"'jax' is already imported, from {origin}. Call shardwise.alias.install() before the first "
            "'import jax', or start the program with 'shardwise run'."
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules["jax"] = root
    for name, module in list(sys.modules.items()):
        _also_named_jax(name, module)
    version = root.config.dialect.jax_version
    root.__dict__.update(__version__=version, __version_info__=tuple(map(int, version.split("."))))
    for kind in (root.Array, *_with_subclasses(root.Array)):
        if kind.__module__ == TARGET:
            kind.__module__ = "jax"
    return root


def _with_subclasses(kind: type) -> list[type]:
    return [subclass for below in kind.__subclasses__() for subclass in (below, *_with_subclasses(below))]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `jax.a.b` as the module object of `shardwise.a.b`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root == TARGET:
            return _own_spec(fullname, rest, path)
        if root == "jaxlib":
            if rest and rest.partition(".")[0] not in ("mlir", "xla_client", config.dialect.jaxlib_classes):
                raise _missing_module_error(fullname, "there is no jaxlib under shardwise: its kernels are NumPy's")
        elif root != "jax":
            return None
        elif rest:
            first = rest.partition(".")[0]
            if first in _INTERNAL:
                raise _missing_module_error(fullname, _inside(first))
            if first not in PUBLIC:
                raise _missing_module_error(fullname, "JAX documents no such module")
        module = _counterpart(fullname)
        # Python would take the spec of a module that it finds under the name now, and run its source again.
        sys.modules.pop(fullname, None)
        spec = importlib.machinery.ModuleSpec(fullname, _SameModule(module))
        if hasattr(module, "__path__"):
            spec.submodule_search_locations = list(module.__path__)
        return spec


class _SameModule(importlib.abc.Loader):
    """Hands out a module that exists already."""

    def __init__(self, module: ModuleType):
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has just replaced it by the alias's


def _own_spec(fullname: str, rest: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    """The path of a public module of ours, if it is Python source; once loaded, `sys.modules` has it as `jax.*`, too.

    Libraries look names such as `jax.tree_util` up there after nothing but `import jax`.
    """
    if rest.partition(".")[0] not in PUBLIC:
        return None
    spec = importlib.machinery.PathFinder.find_spec(fullname, path)
    if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
        return None
    spec.loader = _NamedTwice(spec.loader.name, spec.loader.path)
    return spec


class _NamedTwice(importlib.machinery.SourceFileLoader):
    """Loads a module of ours and enters it under JAX's name."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _also_named_jax(module.__name__, module)


def _also_named_jax(name: str, module: ModuleType) -> None:
    root, _, rest = name.partition(".")
    if root == TARGET and rest.partition(".")[0] in PUBLIC:
        sys.modules.setdefault(f"jax.{rest}", module)
        if "." not in rest:
            module.__name__ = f"jax.{rest}"  # libraries tell namespaces of arrays by it


def _counterpart(fullname: str) -> ModuleType:
    """The module of shardwise that `jax.a.b` names: `shardwise.a.b`, or a module that `shardwise.a` exports as `b`."""
    lib = f"{TARGET}._src.lib"  # in the place of jaxlib
    name = (
        fullname.replace("jaxlib", lib, 1) if fullname.startswith("jaxlib") else TARGET + fullname.removeprefix("jax")
    )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
    parent, _, child = name.rpartition(".")
    member = getattr(sys.modules[parent], child, None)
    if isinstance(member, ModuleType):
        return member
    path = fullname.partition(".")[2]
    reason = _inside(path) if path.startswith("_src.") else why_absent(path)
    raise _missing_module_error(fullname, reason or f"shardwise has no counterpart of it (there is no {name})")


def _inside(path: str) -> str:
    return f"jax.{path} is JAX's inside, which shardwise does not have; use the documented names"


def _missing_module_error(fullname: str, reason: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {fullname!r}: {reason}.", name=fullname)


__dir__ = _listing(__name__)
