"""Functions that machine code calls: of the C library by name, and SciPy's of doubles as ``scipy.special.<name>``.

In: a name. Out: an address.
"""

from __future__ import annotations

import ctypes
from typing import Any

C_LIBRARY = (  # functions of the C library that modules may call
    "acosh", "asinh", "atan2", "atanh", "cbrt", "cos", "erf", "erfc", "fmod", "pow", "sin", "tan",
)  # fmt: skip
SCIPY = {  # and SciPy's, with the number of their operands
    "betainc": 3, "betaln": 2, "dawsn": 1, "erfcx": 1, "erfinv": 1, "expi": 1, "gamma": 1, "gammainc": 2, "gammaincc": 2,
    "gammaln": 1, "i0e": 1, "i1e": 1, "log_ndtr": 1, "ndtri": 1, "owens_t": 2, "poch": 2, "psi": 1, "spence": 1,
}  # fmt: skip
PREFIX = "scipy.special."


def outside_address(name: str) -> int:
    """The address of a function. OSError if there is none."""
    if name.startswith(PREFIX):
        return _scipy_address(name.removeprefix(PREFIX))
    for library in (None, "libm.so.6", "libm.dylib", "libm.so"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    raise OSError(f"the C library's function {name} was not found")


def named_in(code: bytes) -> dict[str, int]:
    """The addresses of the functions that object code may call."""
    called = [name for name in map(PREFIX.__add__, SCIPY) if name.encode() in code]
    return {name: outside_address(name) for name in (*C_LIBRARY, *called)}


def _scipy_address(name: str) -> int:
    """SciPy exports its functions to other compiled code as capsules, whose names are their types; one for each type of operands."""
    from scipy.special import cython_special  # start-up time: a large library

    exported: dict[str, Any] = cython_special.__pyx_capi__
    wanted = f"double ({'double, ' * SCIPY[name]}int __pyx_skip_dispatch)".encode()
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for key in (name, *(f"__pyx_fuse_{i}{name}" for i in range(4))):
        capsule = exported.get(key)
        if capsule is not None and python.PyCapsule_GetName(capsule) == wanted:
            return python.PyCapsule_GetPointer(capsule, wanted)
    raise OSError(f"SciPy's function {name} of doubles was not found")
