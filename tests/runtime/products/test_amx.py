"""Products in tile registers: exact for integers, as float32 sums for bfloat16, and only where they serve."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardwise.ops.products.gemm import contract_as
from shardwise.runtime.products import amx

RNG = np.random.default_rng(0)
PLAIN = (((1,), (0,)), ((), ()))


def values(shape: tuple[int, ...], name: str) -> np.ndarray:
    if name == "bfloat16":
        return RNG.normal(size=shape).astype(ml_dtypes.bfloat16)
    info = np.iinfo(name)
    return RNG.integers(info.min, info.max + 1, shape).astype(name)


needed = pytest.mark.skipif(not amx.granted(), reason="the processor has no tile registers, or the system keeps them")


@needed
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "types", [("bfloat16", "bfloat16"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8"), ("uint8", "uint8")]
)
@pytest.mark.parametrize("layout", ["plain", "left turned", "right turned", "gaps"])
def test_products(types, layout, threads):
    for m, n, k in ((128, 128, 128), (288, 96, 192), (32, 1024, 64), (512, 32, 320)):
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
        if m * n * k < amx._FEWEST:
            assert run is None
            continue
        assert run is not None
        for _ in range(2):
            run(a, b, out)
            expected = a.astype(np.float64) @ b.astype(np.float64)
            if types[0] == "bfloat16":
                np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)
            else:
                np.testing.assert_array_equal(out, expected)


@needed
def test_what_does_not_fit_is_left_to_others():
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


@pytest.mark.parametrize("can", [True, False], ids=["as it is", "without tile registers"])
def test_contractions(monkeypatch, can):
    """What users see is the same with and without."""
    if not can:
        monkeypatch.setattr(amx, "granted", lambda: False)
    m, n, k = 128, 160, 320
    a, b = values((m, k), "int8"), values((k, n), "uint8")
    for out in ("int32", "int8", "uint8", "uint16", "uint32"):
        got = contract_as(np.dtype(out), a, b, 0, PLAIN)
        np.testing.assert_array_equal(got, (a.astype(np.int64) @ b.astype(np.int64)).astype(out))
    x, y = values((4, m, k), "bfloat16"), values((1, k, n), "bfloat16")
    for out in (np.float32, ml_dtypes.bfloat16):
        got = contract_as(np.dtype(out), x, y, 1, PLAIN)
        assert got.dtype == out
        expected = x.astype(np.float64) @ y.astype(np.float64)
        np.testing.assert_allclose(
            got.astype(np.float64), expected, rtol=1e-4 if out == np.float32 else 0.01, atol=1e-2
        )


def test_it_is_not_for_every_machine(monkeypatch):
    monkeypatch.setattr(amx, "processor_flags", lambda: frozenset(["avx2"]))
    assert not amx.granted.__wrapped__()
