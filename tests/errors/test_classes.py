"""Arguments that make no sense, or hardly any: the class of the error beside JAX's, or the type of the result."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw

V = np.array([1.0, 2.0, 3.0], np.float32)
W = np.ones((2, 3), np.float32)

CASES: dict[str, Callable[[Any], Any]] = {
    "a large number as key": lambda lib: lib.random.uniform(2**31),
    "a number as key": lambda lib: lib.random.permutation(7, 5),
    "whole probability": lambda lib: lib.scipy.stats.norm.ppf(1),
    "whole probabilities": lambda lib: lib.scipy.stats.norm.isf(lib.numpy.ones(2, int)),
    "probability": lambda lib: lib.scipy.stats.norm.ppf(0.5, 1, 2),
    **{
        name: lambda lib, name=name: getattr(lib.numpy, name)(-1)
        for name in ("hanning", "hamming", "bartlett", "blackman")
    },
    "kaiser": lambda lib: lib.numpy.kaiser(-1, 2.0),
    "correlate nothing": lambda lib: lib.scipy.signal.correlate(lib.numpy.zeros(0), lib.numpy.asarray(V)),
    "convolve with nothing": lambda lib: lib.scipy.signal.convolve(lib.numpy.asarray(V), lib.numpy.zeros(0)),
    "convolve2d with nothing": lambda lib: lib.scipy.signal.convolve2d(lib.numpy.asarray(W), lib.numpy.zeros((0, 3))),
    "fftconvolve with nothing": lambda lib: lib.scipy.signal.fftconvolve(lib.numpy.asarray(V), lib.numpy.zeros(0)),
    "parameters beyond the shape": lambda lib: lib.random.generalized_normal(lib.random.key(0), lib.numpy.asarray(W)),
    "more parameters than samples": lambda lib: lib.random.generalized_normal(
        lib.random.key(0), lib.numpy.asarray(W), (3,)
    ),
    "take nothing": lambda lib: lib.numpy.take(V, lib.numpy.zeros(0)),
    "take by floats": lambda lib: lib.numpy.take(V, lib.numpy.ones(1)),
    "cast to an array": lambda lib: lib.numpy.can_cast("int32", np.ones(3, np.uint8)),
    "cast to a type": lambda lib: lib.numpy.can_cast("int8", np.dtype("int32")),
    "pivots of 8 bits": lambda lib: lib.lax.linalg.lu_pivots_to_permutation(lib.numpy.ones(3, "uint8"), 4),
    "many first rows": lambda lib: lib.scipy.linalg.leslie(lib.numpy.asarray(W), lib.numpy.asarray(V[:2])),
    "a struct as dtype": lambda lib: lib.numpy.zeros(3, lib.ShapeDtypeStruct((3,), np.int32)),
    "cast to a struct's dtype": lambda lib: lib.numpy.asarray(V).astype(lib.ShapeDtypeStruct((3,), np.int32)),
    "a type of values as dtype": lambda lib: lib.lax.iota(lib.typeof(lib.numpy.ones(2)), 3),
    "an array as dtype": lambda lib: lib.numpy.zeros(3, lib.numpy.asarray(V)),
    "a traced array as dtype": lambda lib: lib.jit(lambda x: lib.numpy.zeros(3, x))(V),
}


def outcome(lib: Any, case: Callable[[Any], Any]) -> Any:
    for name in ("scipy.stats", "scipy.signal", "scipy.linalg"):
        importlib.import_module(f"{lib.__name__}.{name}")
    try:
        found = case(lib)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        return next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    return found if isinstance(found, bool) else (found.shape, found.dtype)


@pytest.mark.usefixtures("latest")
@pytest.mark.parametrize("name", CASES)
def test_as_jax(name: str) -> None:
    assert outcome(sw, CASES[name]) == outcome(pytest.importorskip("jax"), CASES[name])
