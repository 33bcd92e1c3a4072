"""The compiler: LLVM through llvmlite, for this machine's processor.

Comes in: the text of an LLVM module. Goes out: the address of one of its functions, with what keeps it alive.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from dataclasses import dataclass
from typing import Any

from shardwise.base import config
from shardwise.runtime import kernel_store

_OUTSIDE = (  # functions of the C library that modules may call
    "acosh", "asinh", "atan2", "atanh", "cbrt", "cos", "erf", "erfc", "fmod", "pow", "sin", "tan",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """What the writers of modules must know of the processor: bytes of a vector register, and whether it is AVX-512."""

    bytes: int
    wide: bool


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """Machine code: the address of the function, and the owner that must live as long as it may be called."""

    address: int
    owner: Any


class _Host:
    """llvmlite, set up."""

    def __init__(self, binding: Any, features: dict[str, bool]) -> None:
        import llvmlite

        wide = features.get("avx512f", False) and features.get("avx512vl", False) and features.get("avx512dq", False)
        self.target = Target(64 if wide else 32 if features.get("avx2") else 16, wide)
        self.binding = binding
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        names = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
        processor = binding.get_host_cpu_name()
        self.machine = binding.Target.from_default_triple().create_target_machine(
            cpu=processor, features=names, opt=2, jit=True
        )
        # With the text of a module, all on which its code depends.
        self.version = f"llvmlite {llvmlite.__version__}, LLVM {binding.llvm_version_info}, {self.machine.triple}, {processor}, {names}"
        self.lock = threading.Lock()
        self.engines: list[Any] = []  # all of them own the machine: none may ever be freed
        for name in _OUTSIDE:
            binding.add_symbol(name, _address(name))


def _address(name: str) -> int:
    for library in (None, "libm.so.6", "libm.dylib", "libm.so"):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    raise OSError(f"the C library's function {name} was not found")


_host_lock = threading.Lock()
_hosts: list[_Host | None] = []


def _host() -> _Host | None:
    """The compiler, made at the first call; None where there is none for this machine."""
    if not _hosts:
        with _host_lock:
            if not _hosts:
                _hosts.append(_find_host())
    return _hosts[0]


def _find_host() -> _Host | None:
    try:
        if not config.shardwise_llvm or importlib.util.find_spec("llvmlite") is None:
            return None
        import llvmlite.binding as binding

        if binding.llvm_version_info[0] < 15:  # opaque pointers
            return None
        features = dict(binding.get_host_cpu_features())
        triple = binding.get_process_triple()
        if "arm" not in triple and "aarch64" not in triple and not features.get("fma"):
            return None
        return _Host(binding, features)
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
    """The function `name` of the module with the text `ir`. RuntimeError where LLVM refuses the text."""
    host = _need()
    origin = f"{host.version}\n{ir}"
    with host.lock:
        code = kernel_store.load(origin)
        if code is None:
            module = host.binding.parse_assembly(ir)
            module.verify()
            code = host.machine.emit_object(module)
            kernel_store.save(origin, code)
        engine = host.binding.create_mcjit_compiler(host.binding.parse_assembly(""), host.machine)
        engine.add_object_file(host.binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        host.engines.append(engine)
    return Compiled(engine.get_function_address(name), engine)
