"""Names that programs import from parts of JAX that are not here: importing them works, using them says why not.

In: a module of ours that stands for such a part. Out: an attribute of any name, which serves in annotations, as a base class, as
a default and in tests by `isinstance`. Modules make descriptions when they are imported (``BlockSpec(...)``,
``Layout.NATIVE.reduce(0)``), so names that begin with a capital letter, and their members, give an object that holds its arguments.
Calling any other, which is a function (``pallas_call``), raises `NotImplementedError` with its name and the way out.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from shardwise.base.gone import why_absent

# Functions that modules call when they are imported, to decorate others; those refuse when they are called.
_DECORATORS: Final = frozenset({"inline_mgpu"})
# Functions that modules call when they are imported, to make calls of compiled code known; those calls refuse.
_REGISTRATIONS: Final = frozenset({"register_ffi_target", "register_ffi_type", "register_ffi_type_id", "pycapsule"})


class RefusedName(type):
    """The class of such names. Attributes of one (``MemorySpace.VMEM``, ``Module.parse``) are such names, too."""

    path: str
    reason: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """A description that holds the arguments.

        Raises:
            NotImplementedError: the name is a function's.
        """
        *inside, name = cls.path.split(".")
        if any(part.lstrip("_")[:1].isupper() for part in (*inside, name)):
            return super().__call__(*args, **kwargs)
        if name in _DECORATORS:
            return lambda function: refuse_name(f"{cls.path}({getattr(function, '__name__', '')})", cls.reason)
        if name in _REGISTRATIONS:
            return None
        raise NotImplementedError(
            f"{cls.path} is not supported: {cls.reason}. Leave it out, or choose a way without it."
        )

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):  # protocols that Python and libraries look for
            raise AttributeError(f"{cls.path} has no attribute {name!r}")
        child = refuse_name(f"{cls.path}.{name}", cls.reason)
        setattr(cls, name, child)
        return child

    def __getitem__(cls, item: Any) -> RefusedName:
        """``Type[item]`` in annotations."""
        return cls

    def __iter__(cls) -> Any:
        raise TypeError(f"{cls.path} is not iterable; it is not supported: {cls.reason}.")

    def __repr__(cls) -> str:
        return f"<{cls.path}, not supported>"


class Description:
    """An instance of a refused class: it holds its arguments, those by name as attributes."""

    path: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.given = args
        self.__dict__.update(kwargs)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        fields_text = [f"{k}={v!r}" for k, v in self.__dict__.items() if k != "given"]
        return f"{self.path}({', '.join([*map(repr, self.given), *fields_text])})"


def refuse_name(path: str, reason: str) -> RefusedName:
    """The class that stands for the name at `path`."""
    where, _, name = path.rpartition(".")
    return RefusedName(name, (Description,), {"path": path, "reason": reason, "__module__": where})


def refuse_names(module: str, reason: str | None = None) -> Callable[[str], Any]:
    """A `__getattr__` for a module: refused names, made when they are asked for. `reason`: with the way out; None: as `gone` has it."""
    inside = module.partition(".")[2]
    path = f"jax.{inside}"
    why = reason or why_absent(inside) or "it has no counterpart; use the documented names"
    # Kept here rather than in the module, whose `dir` would show the names asked for.
    refuse_by_name = functools.cache(lambda name: refuse_name(f"{path}.{name}", why))

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}: {why}.")
        return refuse_by_name(name)

    return __getattr__


def refuse_below(package: str, submodules: Iterable[str]) -> None:
    """Give a package submodules (``ops``, ``ops.tpu``) whose names are refused."""
    for below in submodules:
        name = f"{package}.{below}"
        module = ModuleType(name, "Names that are refused when they are used.")
        module.__spec__ = ModuleSpec(name, None, is_package=True)  # `importlib.util.find_spec` raises without one
        module.__path__ = []  # any of them may have others below
        vars(module)["__getattr__"] = refuse_names(name)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)
