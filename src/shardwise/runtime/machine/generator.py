"""LLVM's code generator, from the shared library that llvmlite installs.

Comes in: the text of a module. Goes out: its object code. llvmlite's Python modules bring in a hundred others, which takes four times
as long as to load LLVM, so versions of llvmlite whose library is known (`_KNOWN`) are called directly; others through `llvmlite.binding`.
Both make the same code.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, cast

# Minor versions of llvmlite 0.x whose functions take the arguments that are passed below. LLVMPY_ContextCreate takes none from 0.45 on.
_KNOWN = range(44, 51)

OPTIMIZED, DRAFT = 2, 0  # LLVM's levels: its default one, and the one that takes a quarter of the time


class Generator(Protocol):
    """LLVM, ready for this machine's processor."""

    version: tuple[int, ...]
    processor: str
    process_triple: str
    features: dict[str, bool]

    def machine(self, features: str, level: int = OPTIMIZED) -> tuple[str, Callable[[str], bytes]]:
        """For a processor with these features the name of the target, and what makes object code of a module's text. That raises
        RuntimeError where LLVM refuses the text."""
        ...

    def another(self) -> Generator | None:
        """One that another thread may use at the same time; None where there can be only one."""
        ...


def open_generator(folder: str, version: str) -> Generator:
    """LLVM from the llvmlite of this version that lies in `folder`. OSError or ImportError where it cannot be loaded."""
    path = library_path(folder)
    if path is not None and _minor(version) in _KNOWN:
        with contextlib.suppress(OSError, AttributeError):  # the library lies elsewhere, or lacks a function
            return Direct(path)
    return Bound()


def library_path(folder: str) -> str | None:
    """The shared library of the llvmlite in that folder, on systems where its functions are called directly."""
    return os.path.join(folder, "binding", "libllvmlite.so") if sys.platform == "linux" else None


def _minor(version: str) -> int | None:
    """The minor version of a version 0.x."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return int(minor) if major == "0" and minor.isdecimal() else None


def _open_library(path: str) -> int | None:
    """A handle of the library, opened while other threads of Python run; None where only ctypes can open it, which holds them up."""
    try:
        opened = ctypes.CDLL(None).dlopen
    except AttributeError:  # in a library of its own
        return None
    opened.restype, opened.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    return opened(os.fsencode(path), os.RTLD_NOW)


class Direct:
    """The shared library, called directly. It has a context of its own, apart from what others in this process do with LLVM."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._library = ctypes.CDLL(path, handle=_open_library(path))
        number = self._function("GetVersionInfo", ctypes.c_uint)()
        self.version = tuple(number.to_bytes(4, "big").lstrip(b"\0"))
        self._function("InitializeNativeTarget", None)()
        self._function("InitializeNativeAsmPrinter", None)()
        self.processor = self._text("GetHostCPUName")
        self.process_triple = self._text("GetProcessTriple")
        features = self._text("GetHostCPUFeatures").split(",")
        self.features = {f[1:]: f[0] == "+" for f in features if f}
        address = ctypes.c_void_p
        self._context = self._function("ContextCreate", address, ctypes.c_bool)(True)
        self._parse = self._function("ParseAssembly", address, address, ctypes.c_char_p, address)
        self._verify = self._function("VerifyModule", ctypes.c_bool, address, address)
        self._emit = self._function("TargetMachineEmitToMemory", address, address, address, ctypes.c_int, address)
        self._start = self._function("GetBufferStart", address, address)
        self._size = self._function("GetBufferSize", ctypes.c_size_t, address)
        self._free_buffer = self._function("DisposeMemoryBuffer", None, address)
        self._free_module = self._function("DisposeModule", None, address)

    def another(self) -> Direct:
        return Direct(self._path)

    def machine(self, features: str, level: int = OPTIMIZED) -> tuple[str, Callable[[str], bytes]]:
        address, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        triple = self._text("GetDefaultTargetTriple")
        find = self._function("GetTargetFromTriple", address, text, address)
        create = self._function(
            "CreateTargetMachine", address, address, text, text, text, number, text, text, number, number, text
        )
        target = self._ask_with_message(lambda said: find(triple.encode(), said))
        names = triple.encode(), self.processor.encode(), features.encode()
        made = create(target, *names, level, b"default", b"jitdefault", 0, 1, b"") if target else None
        if not made:
            raise RuntimeError(f"LLVM cannot make code for {triple}, processor {self.processor}")
        return triple, lambda ir: self._object_code(made, ir)

    def _object_code(self, machine: int, ir: str) -> bytes:
        text = ir.encode()
        module = self._ask_with_message(lambda said: self._parse(self._context, text, said))
        if not module:
            raise RuntimeError("LLVM cannot read the text of a module")
        try:
            self._ask_with_message(lambda said: self._verify(module, said))
            buffer = self._ask_with_message(lambda said: self._emit(machine, module, 1, said))
            if not buffer:
                raise RuntimeError("LLVM made no object code")
            try:
                return ctypes.string_at(self._start(buffer), self._size(buffer))
            finally:
                self._free_buffer(buffer)
        finally:
            self._free_module(module)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _text(self, name: str) -> str:
        """The string whose address a function writes."""
        said = ctypes.c_char_p()
        self._function(name, None, ctypes.c_void_p)(ctypes.byref(said))
        return self._take_text(said)

    def _ask_with_message(self, call: Callable[[Any], Any]) -> Any:
        """The answer of a call that gets the place of a message. RuntimeError with the message if there is one."""
        said = ctypes.c_char_p()
        answer = call(ctypes.byref(said))
        problem = self._take_text(said)
        if problem:
            raise RuntimeError(f"LLVM: {problem}")
        return answer

    def _take_text(self, said: ctypes.c_char_p) -> str:
        """A string of the library's, which is freed."""
        found = (said.value or b"").decode()
        if said:
            self._function("DisposeString", None, ctypes.c_char_p)(said)
        return found


class Bound:
    """LLVM through `llvmlite.binding`."""

    def __init__(self) -> None:
        import llvmlite.binding as binding  # type: ignore[import-untyped]

        self._binding = library = cast(Any, binding)
        library.initialize_native_target()
        library.initialize_native_asmprinter()
        self.version: tuple[int, ...] = tuple(library.llvm_version_info)
        self.processor = library.get_host_cpu_name()
        self.process_triple = library.get_process_triple()
        self.features: dict[str, bool] = dict(library.get_host_cpu_features())

    def another(self) -> None:
        return None  # all share llvmlite's context

    def machine(self, features: str, level: int = OPTIMIZED) -> tuple[str, Callable[[str], bytes]]:
        made = self.target_machine(features, level)

        def object_code(ir: str) -> bytes:
            module = self._binding.parse_assembly(ir)
            module.verify()
            return made.emit_object(module)

        return made.triple, object_code

    def target_machine(self, features: str, level: int = OPTIMIZED) -> Any:
        """llvmlite's object."""
        target = self._binding.Target.from_default_triple()
        return target.create_target_machine(cpu=self.processor, features=features, opt=level, jit=True)

    def load_code(self, code: bytes, features: str, outside: dict[str, int]) -> Any:
        """Object code brought into memory by LLVM: an execution engine, which owns its target machine and must never be freed. Functions
        outside of the code are found at these addresses."""
        for name, address in outside.items():
            self._binding.add_symbol(name, address)
        engine = self._binding.create_mcjit_compiler(self._binding.parse_assembly(""), self.target_machine(features))
        engine.add_object_file(self._binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return engine
