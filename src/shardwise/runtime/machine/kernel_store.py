"""Machine code kept on disk, so that a later process need not compile it again.

Comes in: what the code was made from. Goes out: the object code, or None. A file is named by the hash of its origin and holds a
checksum over origin and content; it comes into being by a rename, so processes that run at once see whole files or none. Oldest
files are dropped beyond `LIMIT` bytes. Beside them lie whole libraries, which processes load where they lie (`library`).

The folder is `shardwise_cache_dir`, or `jax_compilation_cache_dir`, or ``~/.cache/shardwise``. What lies in it will be run: it must
be ours and nobody else may write to it, nor to its files. A folder for which this does not hold is not used, with a warning; a file
is compiled anew. All is done relative to the folder as it was opened and examined, so replacing it later has no effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import time
import warnings
from collections.abc import Callable, Generator
from typing import Any, BinaryIO

import numpy as np

from shardwise.base import config
from shardwise.base.locks import free_lock

LIMIT = 64 << 20  # bytes that the files of code may take
LIBRARIES = 2  # that may lie there

_MARK = b"shardwise kernel 1\n"
_DIGEST = 32  # bytes
_LARGEST = 4 << 20  # bytes of one file
_ENDING, _LIBRARY = ".o", ".so"
_PRUNED_EVERY = 100  # files written by one process
_STALE_SECONDS = 3600  # from when on an unfinished file is left over from a process that died
_PIECE = 1 << 20  # bytes of each file that are compared at once
_FRESH_SECONDS = 86400  # a file that is used is marked as such once a day


def load(origin: str) -> bytes | None:
    """The code kept for `origin`, a text of everything that the code depends on; None if there is none."""
    store = _store()
    return None if store is None else store.load(origin)


def save(origin: str, code: bytes) -> None:
    """Keep code for later processes. Does nothing where that is not possible: the disk is full, the folder read-only."""
    store = _store()
    if store is not None:
        store.save(origin, code)


def library(name: str, path: str) -> str | None:
    """A path from which the library kept under that name is loaded; None if there is none that is equal to the file at `path`."""
    store = _store()
    return None if store is None else store.library(name + _LIBRARY, path)


def keep_library(name: str, path: str, passes: Callable[[str], bool]) -> None:
    """Copy a library's file into the folder, and leave it there if it `passes`, which gets the path of the copy. Does nothing where a
    copy is not possible.
    """
    store = _store()
    if store is not None:
        store.keep_library(name + _LIBRARY, path, passes)


def copy_file(source: BinaryIO, target: int) -> None:
    """Append an open file's bytes to the file with that descriptor. OSError where that fails."""
    size, done = os.fstat(source.fileno()).st_size, 0
    while done < size:
        sent = os.sendfile(target, source.fileno(), done, size - done)
        if not sent:
            raise OSError("a file ended early")
        done += sent


def folder() -> str | None:
    """Where code is kept, as the options say; None if it is not to be kept."""
    if not (config.shardwise_cache and config.jax_enable_compilation_cache):
        return None
    if config.shardwise_cache_dir:
        return os.path.expanduser(config.shardwise_cache_dir)
    given = config.jax_compilation_cache_dir
    if given and "://" not in given:  # JAX takes addresses of cloud storage, too
        return os.path.join(os.path.expanduser(given), "shardwise")
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "shardwise") if os.path.isabs(base) else None  # None: no home


_lock = free_lock()
_stores: dict[str, Store | None] = {}


def _store() -> Store | None:
    place = folder()
    if place is None or os.open not in os.supports_dir_fd or not hasattr(os, "geteuid"):
        return None
    if place not in _stores:
        with _lock:
            if place not in _stores:
                _stores[place] = _open_store(place)
    return _stores[place]


def _open_store(place: str) -> Store | None:
    """The folder, made if it does not exist; None, with a warning where that helps, if it cannot be used."""
    try:
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(place, 0o700)
        if os.path.islink(place):
            return _warn_refused(place, "is a symbolic link")
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    problem = _problem(os.fstat(handle))
    if problem:
        os.close(handle)
        return _warn_refused(place, problem)
    return Store(handle)


def _problem(status: os.stat_result) -> str | None:
    """Why others may have had a hand in a file or folder."""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _warn_refused(place: str, problem: str) -> None:
    warnings.warn(
        f"Compiled kernels are not kept in {place}, because it {problem}, and what lies there would be run. Make it yours alone "
        f"(chmod 700), set SHARDWISE_CACHE_DIR to another folder, or SHARDWISE_CACHE=0 to keep nothing.",
        UserWarning,
        stacklevel=2,
    )


class Store:
    """An open folder that was found to be ours alone."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._written = 0

    def load(self, origin: str) -> bytes | None:
        """The code kept for `origin`. A damaged file is removed."""
        name = _name(origin)
        try:
            with open(self._open(name, os.O_RDONLY), "rb") as file:
                size = _examine_file(file.fileno())
                if size is None or size > _LARGEST:
                    return None
                content = file.read()
        except OSError:
            return None
        mark, digest, code = _cut(content)
        if mark == _MARK and digest == _digest(origin, code):
            return code
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._handle)
        return None

    def save(self, origin: str, code: bytes) -> None:
        """Write the code under a name of its own, then rename it."""
        content = _MARK + _digest(origin, code) + code
        if len(content) > _LARGEST:
            return
        with contextlib.suppress(OSError):
            with self._write_whole(_name(origin)) as (file, _):
                file.write(content)
            if self._written % _PRUNED_EVERY == 0:
                self.prune()
            self._written += 1

    def library(self, name: str, path: str) -> str | None:
        """The path, through the open folder, of a library that is ours and equal to the file it was copied from. A damaged one is
        removed."""
        try:
            with open(self._open(name, os.O_RDONLY), "rb") as file, open(path, "rb") as source:
                size = _examine_file(file.fileno())
                if size is None:
                    return None
                if size and size == os.fstat(source.fileno()).st_size and _equal(file, source, size):
                    return f"/proc/self/fd/{self._handle}/{name}"
        except (OSError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._handle)
        return None

    def keep_library(self, name: str, path: str, passes: Callable[[str], bool]) -> None:
        """Copy a file. If it passes, it stays, and all libraries but the latest are removed."""
        with contextlib.suppress(OSError):
            with self._write_whole(name) as (file, draft):
                with open(path, "rb") as source:
                    copy_file(source, file.fileno())
                file.close()  # a file that is open for writing may not be loaded
                if not passes(f"/proc/self/fd/{self._handle}/{draft}"):
                    raise OSError("the library did not pass")
            for _, _, old in sorted(self._files(_LIBRARY))[:-LIBRARIES]:
                os.unlink(old, dir_fd=self._handle)

    @contextlib.contextmanager
    def _write_whole(self, name: str) -> Generator[tuple[BinaryIO, str]]:
        """A file, and the name that it has until all is written. It disappears where that fails."""
        draft = f"{name}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            with open(self._open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                yield file, draft
            os.rename(draft, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=self._handle)
            raise

    def prune(self, limit: int | None = None) -> None:
        """Remove what dead processes left unfinished, and the oldest files until the others take less than `limit` bytes."""
        limit = LIMIT if limit is None else limit
        files = self._files(_ENDING)
        total = sum(size for _, size, _ in files)
        for _, size, name in sorted(files):
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._handle)
            total -= size

    def _files(self, ending: str) -> list[tuple[float, int, str]]:
        """Times, sizes and names of the files with that ending. Removes those that were never finished."""
        files: list[tuple[float, int, str]] = []
        now = time.time()
        for name in os.listdir(self._handle):
            with contextlib.suppress(OSError):  # another process may have removed it
                if not (name.endswith(ending) or f"{ending}." in name):
                    continue
                status = os.stat(name, dir_fd=self._handle, follow_symlinks=False)
                if name.endswith(ending):
                    files.append((status.st_mtime, status.st_size, name))
                elif now - status.st_mtime > _STALE_SECONDS:
                    os.unlink(name, dir_fd=self._handle)
        return files

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600, dir_fd=self._handle)


def _equal(one: BinaryIO, other: BinaryIO, size: int) -> bool:
    """Whether two files of `size` bytes, at least one, are the same. Faster than any checksum: both lie in memory, as one of them is in
    use. Other threads of Python run meanwhile.
    """
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return all(_same_piece(compare, one, other, at, min(_PIECE, size - at)) for at in range(0, size, _PIECE))


def _same_piece(compare: Any, one: BinaryIO, other: BinaryIO, at: int, size: int) -> bool:
    """Whether `size` bytes from `at` on are the same; more of the files is never in memory."""
    with (
        mmap.mmap(one.fileno(), size, access=mmap.ACCESS_READ, offset=at) as a,
        mmap.mmap(other.fileno(), size, access=mmap.ACCESS_READ, offset=at) as b,
    ):
        views = np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8)
        same = compare(*[v.ctypes.data for v in views], size) == 0
        del views  # a mapping with views cannot be closed
    return same


def _examine_file(handle: int) -> int | None:
    """The bytes of an open file, which is marked as used; None if it is no file that is ours alone."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or _problem(status):
        return None
    if time.time() - status.st_mtime > _FRESH_SECONDS:
        with contextlib.suppress(OSError):
            os.utime(handle)
    return status.st_size


def _name(origin: str) -> str:
    return _sha256(origin.encode()).hex() + _ENDING


def _digest(origin: str, code: bytes) -> bytes:
    return _sha256(_sha256(origin.encode()) + code)


def _sha256(content: bytes) -> bytes:
    import hashlib  # brings the system's cryptography, which programs without kernels do without

    return hashlib.sha256(content).digest()


def _cut(content: bytes) -> tuple[bytes, bytes, bytes]:
    start = len(_MARK)
    return content[:start], content[start : start + _DIGEST], content[start + _DIGEST :]
