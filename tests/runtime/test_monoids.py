"""Each monoid's fields say the same thing: identity, merge, repetition and MPI's op are checked against each other."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardwise.runtime.monoids import MONOIDS

DTYPES = {
    "biu": [np.bool_, np.int8, np.uint8, np.int32, np.uint64],
    "fc": [np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex64],
}


def values_of(dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, 0, 1, 2, 3, 5, info.max], dtype)
    return np.array([-2, -0.5, 0, 1, 3]).astype(dtype)


CASES = [
    (name, dtype)
    for name in MONOIDS
    for kinds, dtypes in DTYPES.items()
    for dtype in dtypes
    if kinds == "biu" or name in ("sum", "prod", "max", "min")
]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{n}-{np.dtype(d).name}" for n, d in CASES])
def test_the_identity_changes_nothing(name, dtype):
    monoid, values = MONOIDS[name], values_of(dtype)
    identity = np.asarray(monoid.identity(np.dtype(dtype)))
    assert identity.dtype == values.dtype
    np.testing.assert_array_equal(monoid.merge(identity, values), values)
    np.testing.assert_array_equal(monoid.merge(values, identity), values)


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=[f"{n}-{np.dtype(d).name}" for n, d in CASES])
def test_repeated_values(name, dtype):
    monoid, values = MONOIDS[name], values_of(dtype)
    if name in ("sum", "prod") and values.dtype.kind == "b":
        return  # of bools nobody takes sums
    for n in (1, 2, 3):
        want = monoid.over(np.stack([values] * n), 0)
        assert want.dtype == values.dtype
        np.testing.assert_array_equal(monoid.times(values, n), want)


def test_identities():
    dtype = np.dtype
    assert MONOIDS["max"].identity(dtype("int8")) == -128 and MONOIDS["min"].identity(dtype("uint8")) == 255
    assert MONOIDS["max"].identity(dtype("float32")) == -np.inf and MONOIDS["prod"].identity(dtype("int32")) == 1
    assert float(MONOIDS["min"].identity(dtype(ml_dtypes.bfloat16))) == np.inf
    assert MONOIDS["min"].identity(dtype(ml_dtypes.float8_e4m3fn)) == 448


def test_mpi_knows_the_operations():
    mpi = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    assert all(hasattr(mpi, monoid.mpi) for monoid in MONOIDS.values())
    for name, kinds in (("sum", "iufc"), ("max", "iu"), ("xor", "iu")):  # MPI's comparisons drop NaNs
        assert MONOIDS[name].mpi_kinds == kinds


def test_sums_alone_are_linear():
    assert [name for name, monoid in MONOIDS.items() if monoid.linear] == ["sum"]
