"""JAX's derivatives of the cases, kept in ``recorded.npz``: compiling them anew takes minutes.

``python -m tests.transforms.record`` asks JAX about the cases that are new or whose arguments changed, ``--all`` about all.
"""

from __future__ import annotations

import functools
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.transforms.op_cases import Case

RECORD = Path(__file__).parent / "recorded.npz"


def weights(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    """Random tangents and cotangents."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(shape)
    return (w + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else w).astype(dtype)


def tangents(case: Case, seed: int = 1) -> tuple[np.ndarray, ...]:
    """A tangent per argument."""
    return tuple(weights(np.shape(x), np.asarray(x).dtype, seed + i) for i, x in enumerate(case.args))


def both_modes(jax: Any, lax: Any, case: Case) -> list[np.ndarray]:
    """Result, tangent, cotangents and, to second order, the tangents of the cotangents."""
    args, along = tuple(map(np.asarray, case.args)), tangents(case)
    function = lambda *xs: case.function(lax, *xs)  # noqa: E731
    out, tangent = jax.jvp(function, args, along)
    ct = weights(out.shape, out.dtype, 5)
    results = [out, tangent, *jax.vjp(function, *args)[1](ct)]
    if case.second:
        pulled = lambda *xs: jax.vjp(function, *xs)[1](ct)  # noqa: E731
        results += jax.jvp(pulled, args, along)[1]
    return [np.asarray(r) for r in results]


def record_key(case: Case) -> str:
    """The name of a case in the file: it changes with the arguments."""
    bytes_ = b"".join(np.ascontiguousarray(x).tobytes() for x in case.args)
    return f"{case.name} {zlib.crc32(bytes_):08x} {int(case.second)}"


@functools.cache
def recorded() -> dict[str, list[np.ndarray]]:
    """All answers there are, by case and arguments."""
    found: dict[str, list[np.ndarray]] = {}
    if RECORD.exists():
        with np.load(RECORD) as file:
            for name in file.files:
                found.setdefault(name.rpartition("/")[0], []).append(file[name])
    return found


def jax_answers(case: Case) -> list[np.ndarray] | None:
    """What JAX gives for a case; None if that is not recorded and JAX is not installed."""
    known = recorded().get(record_key(case))
    if known is not None:
        return known
    try:
        import jax
    except ImportError:
        return None
    with jax.enable_x64(True):
        return both_modes(jax, jax.lax, case)


def write() -> None:
    """Bring the record up to date."""
    from tests.transforms.derivatives.test_derivatives import CASES

    if "--all" in sys.argv:
        recorded().clear()
    answers = {record_key(c): jax_answers(c) for c in CASES if c.oracle}
    arrays: dict[str, Any] = {f"{key}/{i}": a for key, found in answers.items() for i, a in enumerate(found or ())}
    np.savez_compressed(RECORD, **arrays)
    print(f"{len(answers)} cases, {RECORD.stat().st_size} bytes")


if __name__ == "__main__":
    write()
