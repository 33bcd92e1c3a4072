"""An OpenBLAS of our own: single-threaded, with kernels for this processor, called without the GIL from any thread.

It is a second copy of the library that NumPy has loaded, for two reasons. NumPy's wakes threads of its own, which go on spinning
after each product and take the cores from whatever runs next. And it may have chosen kernels for an older processor: OpenBLAS
goes by model numbers, and takes those it does not know for processors without AVX-512, at half the speed. Here the instructions
decide that the kernel lists.

`library()` loads at its first call and gives None where there is none: NumPy has another BLAS, the system cannot load a copy, the
results are wrong, or the option shardwise_blas is "numpy". Callers then use NumPy. How its functions are called is known before
(`convention`): products by functions of our own, which are called alike, do without it. The copy is made on disk (`kernel_store`), or in
memory where that is not possible, and some of its products are compared; one that passed is kept, so that later processes load it at
once and share its pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base import config
from shardwise.base.shapes import Ndarray
from shardwise.runtime.machine import kernel_store, processor_flags, processor_kind, processor_level, start_thread

if TYPE_CHECKING:
    from shardwise.runtime.loops import Writer

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # of the C interface

# Kernels that use AVX-512, and what a processor needs for the first of them.
_WIDE_CORES = ("skylakex", "cooperlake", "sapphirerapids")
_WIDE_FLAGS = frozenset("avx512f avx512dq avx512bw avx512vl avx512cd avx2 fma".split())
_WIDE, _NARROW = "SkylakeX", "Haswell"

_DEEPBIND = getattr(os, "RTLD_DEEPBIND", 0)  # its own symbols before those of other copies


class Convention:
    """How an OpenBLAS is called: `integer`, its type of sizes, and for each dtype character the arguments of `gemm` and `gemv`, and `one`
    and `zero` as they take them."""

    def __init__(self, integer: type[ctypes.c_int32 | ctypes.c_int64]) -> None:
        self.integer = integer
        self.gemm: dict[str, list[Any]] = {}
        self.gemv: dict[str, list[Any]] = {}
        self.one: dict[str, Any] = {}
        self.zero: dict[str, Any] = {}
        i, n, p = ctypes.c_int, integer, ctypes.c_void_p
        for char, number in (("f", ctypes.c_float), ("d", ctypes.c_double), ("F", p), ("D", p)):
            self.gemm[char] = [i, i, i, n, n, n, number, p, n, p, n, number, p, n]
            self.gemv[char] = [i, i, n, n, number, p, n, p, n, number, p, n]
            if number is p:
                self._numbers = *getattr(self, "_numbers", ()), np.array([1, 0], char)
                self.one[char], self.zero[char] = (
                    self._numbers[-1].ctypes.data + k * np.dtype(char).itemsize for k in (0, 1)
                )
            else:
                self.one[char], self.zero[char] = 1.0, 0.0


def signature(number: str, bits: int) -> str:
    """The arguments of a gemm in LLVM's notation, for elements of the LLVM type `number` and integers of `bits` bits."""
    n = f"i{bits}"
    return (
        f"i32 %order, i32 %left, i32 %right, {n} %m, {n} %n, {n} %k, {number} %alpha, ptr %a, {n} %lda, ptr %b, {n} %ldb, "
        f"{number} %beta, ptr %c, {n} %ldc"
    )


def arguments(w: Writer, names: Sequence[str], bits: int) -> list[str]:
    """Integers among these arguments, of `bits` bits, as integers of 64 bits."""
    return [f"%{name}" if bits == 64 else w.value(f"sext i{bits} %{name} to i64") for name in names]


class _Symbols:
    """The functions of a loaded OpenBLAS, whose names have a prefix and a suffix."""

    def __init__(self, loaded: ctypes.CDLL, prefix: str, suffix: str) -> None:
        self._loaded, self._affixes = loaded, (prefix, suffix)

    @property
    def build(self) -> str:
        """OpenBLAS's own description of itself."""
        return _ask_library(self.function("openblas_get_config"))

    @property
    def convention(self) -> Convention:
        """How they are called."""
        long = "64" in self._affixes[1] or "USE64BITINT" in self.build
        return Convention(ctypes.c_int64 if long else ctypes.c_int32)

    def function(self, name: str) -> Any:
        """A function, by the name in the documentation."""
        prefix, suffix = self._affixes
        return getattr(self._loaded, f"{prefix}{name}{suffix}")


class Library(_Symbols):
    """A copy of our own: `gemm` and `gemv` by dtype character, the name of its kernels, and how it is called."""

    def __init__(self, loaded: ctypes.CDLL, prefix: str, suffix: str) -> None:
        super().__init__(loaded, prefix, suffix)
        self.core = _ask_library(self.function("openblas_get_corename"))
        self.called = self.convention
        self.gemm: dict[str, Any] = {}
        self.gemv: dict[str, Any] = {}
        for letter, char in zip("sdcz", "fdFD", strict=True):
            gemm, gemv = self.function(f"cblas_{letter}gemm"), self.function(f"cblas_{letter}gemv")
            gemm.restype = gemv.restype = None
            gemm.argtypes, gemv.argtypes = self.called.gemm[char], self.called.gemv[char]
            self.gemm[char], self.gemv[char] = gemm, gemv


def _ask_library(function: Any) -> str:
    function.restype = ctypes.c_char_p
    return (function() or b"").decode()


# Held while the library is loaded, also by a thread that forks: a child finds the loader at rest.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_found: list[Library | None] = []
_conventions: list[Convention | None] = []
_preparing = False


def convention() -> Convention | None:
    """How our OpenBLAS is called, which need not be loaded for that; None where it is known that NumPy has to do."""
    if not _conventions:
        with _lock:
            if not _conventions:
                _conventions.append(_numpys_convention())
    return None if _found and _found[0] is None else _conventions[0]


def library() -> Library | None:
    """Our OpenBLAS, or None where NumPy has to do."""
    if not _found:
        with _lock:
            if not _found:
                _found.append(_load_kept() or _load_copy())
    return _found[0]


def prepare() -> None:
    """Load in another thread, as a program is compiled that will need it: to compare a kept library with its origin takes as long as
    the passes of a small program.
    """
    global _preparing
    if _found or _preparing:
        return
    _preparing = True
    start_thread(library)  # if it cannot be, the first product loads it


def _numpys_convention() -> Convention | None:
    """How NumPy's library is called, and so every copy of it."""
    if not _wants_copy():
        return None
    try:
        numpys = numpys_library()
    except OSError:
        return None
    return None if numpys is None else _Symbols(_numpys_extension(), *numpys[1:3]).convention


def _load_kept() -> Library | None:
    """The library that an earlier process left on disk."""
    for path, prefix, suffix, name, core in _candidates():
        with contextlib.suppress(OSError, AttributeError):
            place = kernel_store.library(_kept_name(path, core), path)
            if place is not None:
                return Library(_open_library(place, name), prefix, suffix)
    return None


def _load_copy() -> Library | None:
    """A copy whose products are right. It lies on disk, for later processes, or in memory where that is not possible."""
    for path, prefix, suffix, name, core in _candidates():
        trial = _Trial(prefix, suffix, name)
        with contextlib.suppress(OSError, AttributeError, ValueError):
            kernel_store.keep_library(_kept_name(path, core), path, trial)
            if not trial.done:
                _in_memory(path, trial)
        if trial.library is not None:
            return trial.library
    return None


class _Trial:
    """Loads the library at a path, and says whether its products are right."""

    def __init__(self, prefix: str, suffix: str, core: str | None) -> None:
        self._affixes, self._core = (prefix, suffix), core
        self.done = False
        self.library: Library | None = None

    def __call__(self, path: str) -> bool:
        found = Library(_open_library(path, self._core), *self._affixes)
        self.done = True
        self.library = found if _computes(found) else None
        return self.library is not None


def _wants_copy() -> bool:
    """Whether this system can load a copy, and the options want one."""
    return sys.platform == "linux" and hasattr(os, "memfd_create") and config.shardwise_blas == "auto"


def _candidates() -> Iterator[tuple[str, str, str, str | None, str]]:
    """The libraries to try: path, prefix and suffix of its names, the kernels to ask it for, those that it then has."""
    if not _wants_copy():
        return
    try:
        numpys = numpys_library()
    except OSError:
        return
    if numpys is not None:
        path, prefix, suffix, core = numpys
        wanted = best_core(core)
        if wanted is not None:
            yield path, prefix, suffix, wanted, wanted
        yield path, prefix, suffix, None, core


def _kept_name(path: str, core: str) -> str:
    """The name under which a copy is kept whose products were right with these kernels on this processor."""
    import hashlib  # as in kernel_store

    status = os.stat(path)
    origin = f"{path}, {status.st_size} bytes of {status.st_mtime_ns}, {core} on {processor_kind()}"
    return f"openblas-{hashlib.sha256(origin.encode()).hexdigest()}"


def numpys_library() -> tuple[str, str, str, str] | None:
    """The OpenBLAS that NumPy uses: path, prefix and suffix of its names, and its kernels; None if it uses another BLAS."""
    loaded = _numpys_extension()
    for prefix in ("scipy_", ""):
        for suffix in ("64_", "", "_64"):
            core = getattr(loaded, f"{prefix}openblas_get_corename{suffix}", None)
            if core is not None and hasattr(loaded, f"{prefix}cblas_sgemm{suffix}"):
                return _file_of(core), prefix, suffix, _ask_library(core)
    return None


def _numpys_extension() -> ctypes.CDLL:
    """NumPy's machine code: finds the names of all libraries that it depends on."""
    import numpy._core._multiarray_umath as extension

    return ctypes.CDLL(extension.__file__)


class _Place(ctypes.Structure):
    """The answer of dladdr for an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def _file_of(function: Any) -> str:
    place = _Place()
    if not ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(place)):
        raise OSError("the library of a function was not found")
    return os.fsdecode(place.file)


def best_core(core: str, flags: frozenset[str] | None = None) -> str | None:
    """The kernels to ask for where OpenBLAS chose `core` on a processor of which these flags are used; None: it chose well."""
    flags = processor_flags() if flags is None else flags
    if "OPENBLAS_CORETYPE" in os.environ:
        return None
    if core.lower() in _WIDE_CORES:  # but for one, they take instructions beyond the first of AVX-512
        return None if processor_level() is None else _WIDE if flags >= _WIDE_FLAGS else _NARROW
    return _WIDE if flags >= _WIDE_FLAGS else None


def _in_memory(path: str, trial: _Trial) -> None:
    """Try a copy in memory, which the loader, other than the file itself, loads a second time."""
    copy = os.memfd_create("shardwise-openblas")
    try:
        with open(path, "rb") as file:
            kernel_store.copy_file(file, copy)
        trial(f"/proc/self/fd/{copy}")
    finally:
        os.close(copy)


def _open_library(path: str, core: str | None) -> ctypes.CDLL:
    """Load the library, which is asked for kernels while it starts."""
    wanted = {"OPENBLAS_NUM_THREADS": "1"} | ({"OPENBLAS_CORETYPE": core} if core else {})
    with _c_environment(wanted):
        return ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW | _DEEPBIND)


@contextlib.contextmanager
def _c_environment(values: dict[str, str]) -> Generator[None]:
    """The C library's variables set for a moment; Python's view of them stays."""
    for name, value in values.items():
        os.putenv(name, value)
    try:
        yield
    finally:
        for name in values:
            if name in os.environ:
                os.putenv(name, os.environ[name])
            else:
                os.unsetenv(name)


def _computes(mine: Library) -> bool:
    """Whether small products of each type come out as NumPy has them; the larger one reaches the blocked kernels."""
    for char, gemm in mine.gemm.items():
        for m, n, k in ((7, 5, 3), (35, 67, 131)):
            # No random numbers: to import them takes as long as all this.
            a, b, out = (np.sin(np.arange(x * y)).reshape(x, y).astype(char) for x, y in ((m, k), (k, n), (m, n)))
            if char in "FD":
                a, b = a + a[::-1] * a.dtype.type(1j), b * b.dtype.type(2j)
            expected = np.einsum("ij,jk->ik", a, b)
            for left, lda, lhs in ((PLAIN, k, a), (TRANSPOSED, m, np.ascontiguousarray(a.T))):
                for right, ldb, rhs in ((PLAIN, n, b), (TRANSPOSED, k, np.ascontiguousarray(b.T))):
                    gemm(
                        ROW_MAJOR,
                        left,
                        right,
                        m,
                        n,
                        k,
                        mine.called.one[char],
                        lhs.ctypes.data,
                        lda,
                        rhs.ctypes.data,
                        ldb,
                        mine.called.zero[char],
                        out.ctypes.data,
                        n,
                    )
                    if not _near(out, expected):
                        return False
            line, vector = np.empty(m, char), np.ascontiguousarray(b[:, 0])
            mine.gemv[char](
                ROW_MAJOR,
                PLAIN,
                m,
                k,
                mine.called.one[char],
                a.ctypes.data,
                k,
                vector.ctypes.data,
                1,
                mine.called.zero[char],
                line.ctypes.data,
                1,
            )
            if not _near(line, expected[:, 0]):
                return False
    return True


def _near(found: Ndarray, expected: Ndarray) -> bool:
    return bool((abs(found - expected) <= 1e-4 * (1 + abs(expected))).all())
