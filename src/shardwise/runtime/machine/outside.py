"""Functions that machine code calls: of the C library by name, those of SciPy's LAPACK as ``lapack.<name>``, and inner loops of ufuncs
as ``ufunc.<module>.<name>.<types>``, which `loop_symbol` names.

In: a name. Out: an address.
"""

from __future__ import annotations

import ctypes
import importlib
import re
from functools import cache
from typing import Any

from shardwise.base.scipy_extensions import scipy_extension, special_ufunc

C_LIBRARY = (  # functions of the C library that modules may call
    "acosh", "asinh", "atan2", "atanh", "cbrt", "cos", "erf", "erfc", "fmod", "pow", "sin", "tan",
)  # fmt: skip
LAPACK = "lapack."
_SPECIAL = "scipy.special._ufuncs"
_LOOP, _DATA = "ufunc.", "ufunc_data."
# Where a ufunc keeps its numbers of operands and results; the addresses of its loops, of what these take along, their number and types.
_COUNTS, _LOOPS, _TAKEN, _NUMBER = (object.__basicsize__ + at for at in (0, 16, 24, 32))


def outside_address(name: str) -> int:
    """The address of a function. OSError if there is none."""
    if name.startswith(LAPACK):
        return _lapack_address(name.removeprefix(LAPACK))
    if name.startswith((_LOOP, _DATA)):
        path, _, types = name.partition(".")[2].rpartition(".")
        return _loop_of(path, types)[name.startswith(_DATA)]
    for library in (None, "libm.so.6", "libm.dylib", "libm.so"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    raise OSError(f"the C library's function {name} was not found")


def addresses_in(code: bytes) -> dict[str, int]:
    """The addresses of the functions that object code may call."""
    others = {found.decode() for found in re.findall(rb"(?:ufunc|ufunc_data|lapack)\.[\w.]+", code)}
    return {name: outside_address(name) for name in (*C_LIBRARY, *sorted(others))}


def loop_symbol(ufunc: str, types: str) -> tuple[str, str]:
    """The names of a ufunc's loop for operands and results of these types, and of what it takes along: ``null`` where that is nothing.

    `ufunc` is its path, as ``numpy.log``; types are NumPy's letters, as ``F->F``. OSError if there is no such loop.
    """
    name = f"{ufunc}.{types.replace('->', '_')}"
    taken = _loop_of(ufunc, types.replace("->", "_"))[1]
    return f"{_LOOP}{name}", f"{_DATA}{name}" if taken else "null"


@cache
def _loop_of(path: str, types: str) -> tuple[int, int]:
    """The addresses of the loop and of what it takes along."""
    module, _, name = path.rpartition(".")
    try:
        ufunc: Any = special_ufunc(name) if module == _SPECIAL else getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):  # modules of NumPy's own differ between versions
        raise OSError(f"there is no ufunc {path}") from None
    at, wanted = id(ufunc), types.replace("_", "->")
    counts = tuple((ctypes.c_int * 3).from_address(at + _COUNTS))
    number = ctypes.c_int.from_address(at + _NUMBER).value
    if counts != (ufunc.nin, ufunc.nout, ufunc.nargs) or number != ufunc.ntypes or wanted not in ufunc.types:
        raise OSError(f"the ufunc {path} has no loop {wanted}")
    k = ufunc.types.index(wanted)
    tables = (ctypes.c_void_p.from_address(at + table).value for table in (_LOOPS, _TAKEN))
    loop, taken = ((ctypes.c_void_p * number).from_address(table)[k] or 0 if table else 0 for table in tables)
    return loop, taken


def _lapack_address(name: str) -> int:
    """SciPy exports its routines to other compiled code as capsules, whose names are their types."""
    capsule: Any = scipy_extension("linalg.cython_lapack").__pyx_capi__.get(name)
    if capsule is None:
        raise OSError(f"SciPy's LAPACK has no routine {name}")
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
