"""The compiler: LLVM through llvmlite, for this machine's processor.

Comes in: the text of an LLVM module. Goes out: the addresses of its functions, with what keeps them alive. What was compiled before
comes from disk and is loaded by `machine_code`; LLVM itself, a large library, is brought in when there is something to compile.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from shardwise.base import config
from shardwise.runtime.machine import kernel_store, machine_code
from shardwise.runtime.machine.processor import check_level, processor_kind, uses

_OUTSIDE = (  # functions of the C library that modules may call
    "acosh", "asinh", "atan2", "atanh", "cbrt", "cos", "erf", "erfc", "fmod", "pow", "sin", "tan",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What the writers of modules must know of the processor: bytes of a vector register, and whether it is AVX-512."""

    bytes: int
    wide: bool


class Code(Protocol):
    """Loaded machine code."""

    def address_of(self, name: str) -> int:
        """The address of one of its functions."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A function: its address, and the code that must live as long as it may be called."""

    address: int
    owner: Code

    def called_as(self, kind: Any, name: str | None = None) -> Any:
        """It, or the function `name` of its module, as a ctypes function of a kind; that keeps the code alive."""
        function = kind(self.address if name is None else self.owner.address_of(name))
        function.owner = self.owner
        return function


class _Compiler:
    """llvmlite, set up. To be used under the lock."""

    def __init__(self, binding: Any, features: dict[str, bool]) -> None:
        import llvmlite

        wide = features.get("avx512f", False) and features.get("avx512vl", False) and features.get("avx512dq", False)
        self.target = Target(64 if wide else 32 if features.get("avx2") else 16, wide)
        self._binding = binding
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        names = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
        processor = binding.get_host_cpu_name()
        self._machine = binding.Target.from_default_triple().create_target_machine(
            cpu=processor, features=names, opt=2, jit=True
        )
        # With the text of a module, all on which its code depends.
        self.version = f"llvmlite {llvmlite.__version__}, LLVM {binding.llvm_version_info}, {self._machine.triple}, {processor}, {names}"
        self._engines: list[Any] = []  # all of them own the machine: none may ever be freed

    def compiled(self, ir: str) -> bytes:
        """The object code of a module. RuntimeError where LLVM refuses the text."""
        module = self._binding.parse_assembly(ir)
        module.verify()
        return self._machine.emit_object(module)

    def loaded(self, code: bytes) -> Code:
        """Object code brought into memory by LLVM."""
        if not self._engines:
            for name in _OUTSIDE:
                self._binding.add_symbol(name, _address(name))
        engine = self._binding.create_mcjit_compiler(self._binding.parse_assembly(""), self._machine)
        engine.add_object_file(self._binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._engines.append(engine)
        return _Engine(engine)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class _Engine:
    """Code that LLVM loaded."""

    engine: Any

    def address_of(self, name: str) -> int:
        return self.engine.get_function_address(name)


def _address(name: str) -> int:
    for library in (None, "libm.so.6", "libm.dylib", "libm.so"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    raise OSError(f"the C library's function {name} was not found")


class _Host:
    """This machine: what code is compiled for, and the compiler, which is set up when it is first needed."""

    def __init__(self, target: Target, version: str, compiler: _Compiler | None = None) -> None:
        self.target = target
        self.version = version
        self._compiler = compiler

    def compiler(self) -> _Compiler:
        """llvmlite. RuntimeError where it cannot be loaded after all, or is another one."""
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
_hosts: list[_Host | None] = []


def _host() -> _Host | None:
    """What there is to compile with, found at the first call; None where nothing can be compiled for this machine."""
    if not _hosts:
        with _lock:
            if not _hosts:
                _hosts.append(_find_host())
    check_level()
    return _hosts[0]


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
    """A text that says which library compiles, and for which processor, as far as that is known without loading it."""
    kind = processor_kind()
    spec = importlib.util.find_spec("llvmlite") if kind and sys.platform == "linux" else None
    if spec is None or spec.origin is None:
        return None
    library = os.path.join(os.path.dirname(spec.origin), "binding", "libllvmlite.so")
    try:
        status = os.stat(library)
    except OSError:
        return None
    return f"compiler {library}, {status.st_size} bytes of {status.st_mtime_ns}, for {kind}"


def _find_compiler() -> _Compiler | None:
    try:
        if not config.shardwise_llvm or importlib.util.find_spec("llvmlite") is None:
            return None
        import llvmlite.binding as binding

        if binding.llvm_version_info[0] < 15:  # opaque pointers
            return None
        features = {name: on and uses(name) for name, on in binding.get_host_cpu_features().items()}
        triple = binding.get_process_triple()
        if "arm" not in triple and "aarch64" not in triple and not features.get("fma"):
            return None
        return _Compiler(binding, features)
    except (ImportError, OSError, RuntimeError):
        return None


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


def compile_function(name: str, ir: str) -> Compiled:
    """The function `name` of the module with the text `ir`. RuntimeError where LLVM refuses the text.

    What is not used by any function any more leaves the memory: keep the answer, or what its `called_as` gives.
    """
    import hashlib  # as in kernel_store

    host = _need()
    key = hashlib.sha256(ir.encode()).digest()
    owner = _modules.get(key)
    if owner is None:
        code = kernel_store.load(f"{host.version}\n{ir}")
        if code is None:
            with _lock:
                code = host.compiler().compiled(ir)
            kernel_store.save(f"{host.version}\n{ir}", code)
        owner = _modules[key] = _loaded(host, code)
    return Compiled(owner.address_of(name), owner)


def compile_kernel(name: str, ir: str) -> Callable[..., None]:
    """The function ``name(job, pointers, counter)`` of a module, which is called without the GIL with three addresses."""
    return compile_function(name, ir).called_as(_KERNEL)


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_modules: WeakValueDictionary[bytes, Code] = WeakValueDictionary()  # by the hash of the text


def _loaded(host: _Host, code: bytes) -> Code:
    try:
        return machine_code.loaded(code, _address)
    except (machine_code.Unfamiliar, OSError):
        with _lock:
            return host.compiler().loaded(code)
