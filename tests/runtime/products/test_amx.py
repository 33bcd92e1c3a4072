"""Products in tile registers: exact for integers, as float32 sums for bfloat16, and only where they serve."""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from shardwise.ops.products.gemm import contract_as
from shardwise.runtime import costs
from shardwise.runtime.machine import llvm
from shardwise.runtime.products import amx
from tests.rounding import assert_einsum

RNG = np.random.default_rng(0)
PLAIN = (((1,), (0,)), ((), ()))


def values(shape: tuple[int, ...], name: str) -> np.ndarray:
    if name == "bfloat16":
        return RNG.normal(size=shape).astype(ml_dtypes.bfloat16)
    info = np.iinfo(name)
    return RNG.integers(info.min, info.max + 1, shape).astype(name)


class TilesInMemory:
    """What the instructions on tiles do, in NumPy: each thread has tiles of its own."""

    SIGNS: ClassVar = {"tdpbssd": "bb", "tdpbsud": "bB", "tdpbusd": "Bb", "tdpbuud": "BB"}

    def __init__(self) -> None:
        self._own = threading.local()
        byte, word = ctypes.c_uint8, ctypes.c_void_p
        self._functions = {
            "ldtilecfg": ctypes.CFUNCTYPE(None, word)(self.configure),
            "tilerelease": ctypes.CFUNCTYPE(None)(self.release),
            "tilezero": ctypes.CFUNCTYPE(None, byte)(self.zero),
            "tileloadd64": ctypes.CFUNCTYPE(None, byte, word, ctypes.c_int64)(self.load),
            "tilestored64": ctypes.CFUNCTYPE(None, byte, word, ctypes.c_int64)(self.store),
            "tdpbf16ps": ctypes.CFUNCTYPE(None, *[byte] * 3)(self.add_floats),
        }
        for name, (a, b) in self.SIGNS.items():
            self._functions[name] = ctypes.CFUNCTYPE(None, *[byte] * 3)(functools.partial(self.add_integers, a, b))

    def calls(self, text: str) -> str:
        """The module with calls of these functions for the instructions."""

        def call(found: re.Match[str]) -> str:
            return f"call void inttoptr (i64 {ctypes.cast(self._functions[found[1]], ctypes.c_void_p).value} to ptr)("

        text = re.sub(r"declare void @llvm\.x86\.t?[^\n]*\n", "", text)
        return re.sub(r"call void @llvm\.x86\.(\w+)\(", call, text)

    def configure(self, at: int) -> None:
        shape = np.ctypeslib.as_array((ctypes.c_uint8 * 64).from_address(at))
        assert shape[0] == 1
        self._own.tiles = [
            np.zeros((rows, size), np.uint8) for rows, size in zip(shape[48:], shape[16:48:2], strict=True)
        ]

    def release(self) -> None:
        del self._own.tiles

    def zero(self, tile: int) -> None:
        self._own.tiles[tile][:] = 0

    def lines(self, tile: int, at: int, step: int) -> np.ndarray:
        """The memory that a tile is read from or written to."""
        rows, size = self._own.tiles[tile].shape
        memory = (ctypes.c_uint8 * ((rows - 1) * step + size)).from_address(at)
        return np.ndarray((rows, size), np.uint8, memory, strides=(step, 1))

    def load(self, tile: int, at: int, step: int) -> None:
        self._own.tiles[tile][:] = self.lines(tile, at, step)

    def store(self, tile: int, at: int, step: int) -> None:
        self.lines(tile, at, step)[:] = self._own.tiles[tile]

    def add_floats(self, out: int, a: int, b: int) -> None:
        x, y = (self._own.tiles[t].view(ml_dtypes.bfloat16).astype("f").reshape(16, 16, 2) for t in (a, b))
        self._own.tiles[out].view("f")[:] += np.einsum("ike,kje->ij", x, y)

    def add_integers(self, first: str, second: str, out: int, a: int, b: int) -> None:
        tiles = self._own.tiles
        x, y = (tiles[t].view(c).astype("i").reshape(16, 16, 4) for t, c in ((a, first), (b, second)))
        tiles[out].view("i")[:] += np.einsum("ike,kje->ij", x, y)


@pytest.fixture(params=["tile registers", "tiles in memory"])
def tiles(request, monkeypatch):
    """With the processor's instructions, where it has them, and with `TilesInMemory`."""
    if request.param == "tile registers":
        if not amx.has_amx():
            pytest.skip("the processor has no tile registers, or the system keeps them")
        return None
    if not llvm.available():
        pytest.skip("no compiler")
    monkeypatch.setattr(amx, "has_amx", lambda: True)
    compile_kernel, memory = llvm.compile_kernel, TilesInMemory()
    monkeypatch.setattr(
        llvm, "compile_kernel", lambda name, text, *more: compile_kernel(name, memory.calls(text), *more)
    )
    amx._multiplier.cache_clear()
    request.addfinalizer(amx._multiplier.cache_clear)
    return memory


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "types", [("bfloat16", "bfloat16"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"), ("uint8", "uint8")]
)
@pytest.mark.parametrize("layout", ["plain", "left turned", "right turned", "gaps"])
def test_products(tiles, types, layout, threads):
    sizes = (
        ((288, 96, 192), (32, 1024, 64)) if tiles else ((128, 128, 128), (288, 96, 192), (32, 1024, 64), (512, 32, 320))
    )
    for m, n, k in sizes:
        a, b = values((m, k), types[0]), values((k, n), types[1])
        out = np.full((m, n), 9, np.float32 if types[0] == "bfloat16" else np.int32)
        if layout == "left turned":
            a = np.ascontiguousarray(a.T).T
        elif layout == "right turned":
            b = np.ascontiguousarray(b.T).T
        elif layout == "gaps":
            a, b = np.hstack([a, a])[:, :k], np.hstack([b, b])[:, 2 : n + 2] if n > 32 else b

            out = np.full((m, n + 4), 9, out.dtype)[:, :n]

        run = amx.product(a, b, out, threads)
        if m * n * k < costs.TILES_FROM:
            assert run is None
            continue
        assert run is not None
        for _ in range(2):
            run(a, b, out)
            if types[0] == "bfloat16":
                assert_einsum(out, "ij,jk->ik", a, b)
            else:
                np.testing.assert_array_equal(out, a.astype(np.float64) @ b.astype(np.float64))


def test_what_does_not_fit_is_left_to_others(tiles):
    out = np.zeros((256, 256), np.float32)
    a = values((256, 256), "bfloat16")
    assert amx.product(a, a, out, 1) is not None
    assert amx.product(a, a, out.astype(np.float64), 1) is None
    assert amx.product(a[:250], a, out[:250], 1) is None
    assert amx.product(a[:, :250], a[:250], out, 1) is None
    assert amx.product(a, a[:, :250], out[:, :250], 1) is None
    assert amx.product(a[:, ::2], a[:128], out, 1) is not None  # copied
    assert amx.product(a.astype(np.float16), a.astype(np.float16), out, 1) is None
    assert amx.product(a[None], a[None], out[None], 1) is None


@pytest.mark.parametrize("instruction", [instruction for instruction, _ in amx._MULTIPLY.values()])
def test_machine_code(monkeypatch, instruction):
    """Whatever this processor is, the text compiles for one with tile registers, and sums stay there from depth to depth."""
    binding = pytest.importorskip("llvmlite.binding")
    if not llvm.available():
        pytest.skip("no compiler")
    texts: list[str] = []
    monkeypatch.setattr(llvm, "compile_kernel", lambda name, text, *_: texts.append(text))
    amx._multiplier.__wrapped__(instruction)
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine("sapphirerapids", features="+amx-tile,+amx-int8,+amx-bf16", opt=2)
    module = binding.parse_assembly(texts[0])
    module.verify()
    assembly = machine.emit_assembly(module)
    for name, count in (
        (instruction, 4),
        ("tileloadd", 4),
        ("tilestored", 4),
        ("tilezero", 4),
        ("ldtilecfg", 1),
        ("tilerelease", 1),
    ):
        assert len(re.findall(rf"\t{name}\b", assembly)) == count
    loads = re.search(r"tileloadd(.*?)tdp", assembly, re.DOTALL)
    assert loads is not None
    assert len(loads[1].splitlines()) == 5  # the four loads follow each other
    assert len(machine.emit_object(module)) < 2000


@pytest.mark.parametrize("can", [True, False], ids=["as it is", "without tile registers"])
def test_contractions(monkeypatch, can):
    """What users see is the same with and without."""
    if not can:
        monkeypatch.setattr(amx, "has_amx", lambda: False)
    m, n, k = 128, 160, 320
    a, b = values((m, k), "int8"), values((k, n), "uint8")
    for out in ("int32", "int8", "uint8", "uint16", "uint32"):
        got = contract_as(np.dtype(out), a, b, 0, PLAIN)
        np.testing.assert_array_equal(got, (a.astype(np.int64) @ b.astype(np.int64)).astype(out))
    x, y = values((4, m, k), "bfloat16"), values((1, k, n), "bfloat16")
    for out in (np.float32, ml_dtypes.bfloat16):
        got = contract_as(np.dtype(out), x, y, 1, PLAIN)
        assert got.dtype == out
        assert_einsum(got, "aij,bjk->aik", x, y)


def test_it_is_not_for_every_machine(monkeypatch):
    monkeypatch.setattr(amx, "processor_flags", lambda: frozenset(["avx2"]))
    assert not amx.has_amx.__wrapped__()
