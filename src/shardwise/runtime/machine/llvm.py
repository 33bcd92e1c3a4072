"""The compiler: LLVM, for this machine's processor.

Comes in: the text of an LLVM module. Goes out: the addresses of its functions, with what keeps them alive. What was compiled before
comes from disk and is loaded by `machine_code`; LLVM itself, a large library, is brought in when there is something to compile.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import math
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from shardwise.base import config
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import free_lock
from shardwise.runtime.machine import generator, kernel_store, machine_code
from shardwise.runtime.machine.drafts import calls_that_pay, drafts
from shardwise.runtime.machine.machine_code import LoadedCode, MachineCode
from shardwise.runtime.machine.outside import addresses_in, outside_address
from shardwise.runtime.machine.processor import check_level, processor_kind, uses
from shardwise.runtime.machine.threads import process_ends, start_thread


@dataclass(frozen=True, slots=True)
class Target:
    """The processor as the writers of modules know it: bytes of a vector register, and whether it is AVX-512."""

    bytes: int
    wide: bool


@dataclass(frozen=True, slots=True, eq=False)
class CompiledFunction:
    """A function: its address, and the code that must live as long as it may be called."""

    address: int
    owner: LoadedCode

    def as_ctypes(self, kind: Any, name: str | None = None) -> Any:
        """It, or the function `name` of its module, as a ctypes function of a kind; that keeps the code alive."""
        function = kind(self.address if name is None else self.owner.address_of(name))
        function.owner = self.owner
        return function


class _Compiler:
    """LLVM, set up. To be used under the lock."""

    def __init__(self, made: generator.Generator, version: str) -> None:
        features = {name: on and uses(name) for name, on in made.features.items()}
        if not _knows(made, features):
            raise RuntimeError("LLVM does not know this processor well enough")
        wide = features.get("avx512f", False) and features.get("avx512vl", False) and features.get("avx512dq", False)
        self.target = Target(64 if wide else 32 if features.get("avx2") else 16, wide)
        self._made = made
        self._names = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
        triple, self.compiled = made.machine(self._names)  # `compiled`: the object code of a module's text
        self.drafts = isinstance(made, generator.Direct)
        # With the text of a module, all on which its code depends.
        self.version = f"llvmlite {version}, LLVM {made.version}, {triple}, {made.processor}, {self._names}"
        self._drafted: Callable[[str], bytes] | None = None
        self._behind: Callable[[str], bytes] | None = None
        self._loader: generator.Bound | None = None
        self._engines: list[Any] = []

    def draft_code(self, ir: str) -> bytes:
        """The same made fast: slower code, with the same results."""
        if self._drafted is None:
            _, self._drafted = self._made.machine(self._names, generator.DRAFT)
        return self._drafted(ir)

    def behind(self) -> Callable[[str], bytes] | None:
        """A function that does as `compiled`, for one other thread at a time, which need not hold the lock when it calls it. None if only
        one can."""
        if self._behind is None and (made := self._made.another()) is not None:
            _, self._behind = made.machine(self._names)
        return self._behind

    def load_code(self, code: bytes) -> LoadedCode:
        """Object code brought into memory by LLVM."""
        if self._loader is None:
            self._loader = generator.Bound()
        engine = self._loader.load_code(code, self._names, addresses_in(code))
        self._engines.append(engine)
        return _Engine(engine)


def _knows(made: generator.Generator, features: dict[str, bool]) -> bool:
    """Whether LLVM is new enough, for opaque pointers, and the processor multiplies and adds in one step."""
    arm = "arm" in made.process_triple or "aarch64" in made.process_triple
    return made.version[0] >= 15 and (arm or features.get("fma", False))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Engine:
    """Code that LLVM loaded."""

    engine: Any

    def address_of(self, name: str) -> int:
        return self.engine.get_function_address(name)


class _Host:
    """This machine as a target of compiled code, and the compiler, which is set up when it is first needed."""

    def __init__(self, target: Target, version: str, compiler: _Compiler | None = None) -> None:
        self.target = target
        self.version = version
        self._compiler = compiler

    def compiler(self) -> _Compiler:
        """LLVM. RuntimeError where it cannot be loaded after all, or is another one."""
        if self._compiler is None:
            found = _find_compiler()
            if found is None or found.target != self.target:
                raise RuntimeError(
                    "llvmlite cannot be loaded any more, or not for this processor: install it anew, or "
                    "set SHARDWISE_LLVM=0"
                )
            self._compiler, self.version = found, found.version
        return self._compiler


# Held while LLVM works, also by a thread that forks: a child finds LLVM at rest.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@atexit.register
def close() -> None:
    """Keep the lock where the process ends: no other thread loads LLVM, or is at work in it, when its library ends."""
    if process_ends():
        _lock.acquire()


_hosts: list[_Host | None] = []
_preparing = False


def _host() -> _Host | None:
    """The compiler, found at the first call; None where nothing can be compiled for this machine."""
    if not _hosts:
        with _lock:
            if not _hosts:
                _hosts.append(_find_host())
    check_level()
    return _hosts[0]


def prepare() -> None:
    """Find in another thread, as a program is compiled, what there is to compile with: where no earlier process did, LLVM is loaded."""
    global _preparing
    if not (_hosts or _preparing):
        _preparing = True
        start_thread(_host)  # if it cannot be, who asks first finds it


def _find_host() -> _Host | None:
    origin = _origin() if config.shardwise_llvm else None
    kept = kernel_store.load(origin) if origin else None
    if kept is not None:
        size, wide, version = kept.decode().split("\n", 2)
        return _Host(Target(int(size), wide == "wide"), version)
    compiler = _find_compiler()
    if compiler is None:
        return None
    target = compiler.target
    if origin:
        kernel_store.save(origin, f"{target.bytes}\n{'wide' if target.wide else ''}\n{compiler.version}".encode())
    return _Host(target, compiler.version, compiler)


def _origin() -> str | None:
    """A text that names the library that compiles and the processor, as far as known without loading the library."""
    kind = processor_kind()
    folder = _llvmlite() if kind else None
    library = None if folder is None else generator.library_path(folder)
    if library is None:
        return None
    try:
        status = os.stat(library)
    except OSError:
        return None
    return f"compiler {library}, {status.st_size} bytes of {status.st_mtime_ns}, for {kind}"


def _find_compiler() -> _Compiler | None:
    try:
        folder = _llvmlite() if config.shardwise_llvm else None
        if folder is None:
            return None
        from llvmlite import __version__ as version  # type: ignore[import-untyped]

        return _Compiler(generator.open_generator(folder, version), version)
    except (ImportError, OSError, RuntimeError):
        return None


def _llvmlite() -> str | None:
    """The folder of llvmlite, or None where it is not installed."""
    spec = importlib.util.find_spec("llvmlite")
    return None if spec is None or spec.origin is None else os.path.dirname(spec.origin)


def available() -> bool:
    """Whether functions can be compiled: llvmlite is there, and the processor multiplies and adds in one step."""
    return _host() is not None


def target() -> Target:
    """The processor that functions are compiled for. RuntimeError where none can be compiled."""
    return _need().target


def _need() -> _Host:
    host = _host()
    if host is None:
        raise RuntimeError("nothing can be compiled here: llvmlite is missing or does not know this processor")
    return host


_in_work: dict[bytes, threading.Lock] = {}  # by the hash of the text


def compile_function(name: str, ir: str, slower: float = math.inf, ahead: bool = False) -> CompiledFunction:
    """The function `name` of the module with the text `ir`. RuntimeError where LLVM refuses the text.

    What is not used by any function any more leaves the memory: keep the answer, or what its `as_ctypes` gives.

    Args:
        name: the function.
        ir: its module.
        slower: nanoseconds that the first call would take longer as a draft: code that takes LLVM a quarter of the time, with the same
            results. Where a draft pays, it does until it was called so often that it does not; then better code is made in the
            background and takes its place. Not finite: the best code at once.
        ahead: by a thread that makes what others will ask for: LLVM works for them meanwhile.
    """
    import hashlib  # as in kernel_store

    host = _need()
    key = hashlib.sha256(ir.encode()).digest()
    calls = calls_that_pay(ir, slower)
    owner = _modules.get(key)
    if owner is None:
        try:
            with _in_work.setdefault(key, free_lock()):  # threads that meet here share what the first one makes
                owner = _modules.get(key)
                if owner is None:
                    owner = _modules[key] = _draft(host, ir, calls) or _best(host, ir, ahead)
        finally:
            _in_work.pop(key, None)
    if not calls and isinstance(owner, MachineCode) and drafts.take(owner):
        owner.give_way(_best(host, ir))
    return CompiledFunction(owner.address_of(name), owner)


def kept_function(name: str, ir: str) -> CompiledFunction | None:
    """The same, if nothing need be compiled for it."""
    host = _need()
    code = kernel_store.load(f"{host.version}\n{ir}")
    return None if code is None else compile_function(name, ir)


def _best(host: _Host, ir: str, ahead: bool = False) -> LoadedCode:
    origin = f"{host.version}\n{ir}"
    code = kernel_store.load(origin)
    if code is None:
        code = _compile_beside(host, ir) if ahead else None
        if code is None:
            with _lock:
                code = host.compiler().compiled(ir)
        kernel_store.save(origin, code)
    return _load_code(host, code)


def _compile_beside(host: _Host, ir: str) -> bytes | None:
    """The best object code, made while others compile; None where that cannot be, or as the process ends."""
    with _lock:
        compiled = host.compiler().behind()
    if compiled is None:
        return None
    with drafts.working:
        return None if drafts.ending else compiled(ir)


def _draft(host: _Host, ir: str, calls: int) -> LoadedCode | None:
    """A draft that serves for `calls` calls, or better code that is kept; None where there can be no drafts."""
    if not calls:
        return None
    code = kernel_store.load(f"{host.version}\n{ir}")
    if code is not None:
        return _load_code(host, code)
    origin = f"draft for {host.version}\n{ir}"
    code = kernel_store.load(origin)
    if code is None:
        with _lock:
            compiler = host.compiler()
            if not compiler.drafts:
                return None
            code = compiler.draft_code(ir)
        kernel_store.save(origin, code)
    try:
        made = machine_code.load_code(code, outside_address, calls)
    except (machine_code.Unfamiliar, OSError):
        return None
    drafts.watch(made, lambda: _improve_draft(host, ir))
    return made


def _improve_draft(host: _Host, ir: str) -> LoadedCode | None:
    """The best code, made by the thread that improves drafts."""
    origin = f"{host.version}\n{ir}"
    code = kernel_store.load(origin)
    if code is None:
        code = _compile_beside(host, ir)
        if code is None:
            return None
        kernel_store.save(origin, code)
    return _load_code(host, code)


def compile_kernel(name: str, ir: str, slower: float = math.inf, ahead: bool = False) -> Callable[..., None]:
    """The function ``name(job, pointers, counter)`` of a module, which is called without the GIL with three addresses."""
    return compile_function(name, ir, slower, ahead).as_ctypes(_KERNEL)


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_modules: WeakValueDictionary[bytes, LoadedCode] = WeakValueDictionary()  # by the hash of the text


def _load_code(host: _Host, code: bytes) -> LoadedCode:
    try:
        return machine_code.load_code(code, outside_address)
    except (machine_code.Unfamiliar, OSError):
        with _lock:
            return host.compiler().load_code(code)
