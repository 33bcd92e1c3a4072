"""Slopes of statistics over rows without elements that count, beside JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw

nan = np.nan
ROWS = {
    "nan": np.full((3,), nan, np.float32),
    "some": np.array([[nan, 1, 2], [nan, nan, nan], [1, 1, 3]], np.float32),
    "zeros": np.zeros(3, np.float32),
}
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "var": lambda np_, x: np_.var(x, axis=-1, ddof=3),
    "std": lambda np_, x: np_.std(x, axis=-1, ddof=3),
    "nanvar": lambda np_, x: np_.nanvar(x, axis=-1, ddof=3),
    "nanmean": lambda np_, x: np_.nanmean(x, axis=-1),
    "nanmedian": lambda np_, x: np_.nanmedian(x, axis=-1),
    "nanquantile": lambda np_, x: np_.nanquantile(x, 0.25, axis=-1),
    "nanmax": lambda np_, x: np_.nanmax(x, axis=-1),
    "median": lambda np_, x: np_.median(x, axis=-1),
}


def outcomes(lib: Any, function: Callable[[Any, Any], Any], rows: Any) -> list[Any]:
    f = lambda x: function(lib.numpy, x)  # noqa: E731
    x = lib.numpy.asarray(rows)

    def slope(x: Any) -> Any:
        out, pull = lib.vjp(f, x)
        return pull(lib.numpy.ones_like(out))[0]

    ones = lib.numpy.ones_like(x)
    return [f(x), lib.jvp(f, (x,), (ones,))[1], slope(x), lib.jit(slope)(x), lib.jvp(slope, (x,), (ones,))[1]]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_jax(name: str, rows: str) -> None:
    ours, theirs = (outcomes(lib, FUNCTIONS[name], ROWS[rows]) for lib in (sw, pytest.importorskip("jax")))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
