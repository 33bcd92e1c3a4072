"""Random index expressions of every form, for tests that compare with NumPy and the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np


def random_index(rng: np.random.Generator, shape: tuple[int, ...], *, out_of_bounds: bool = False) -> Any:
    """An index into an array of `shape`: ints, slices, None, Ellipsis, int arrays, masks, in any mixture."""
    items: list[Any] = []
    dim = 0
    stop = int(rng.integers(0, len(shape) + 1))
    lookup = tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3))))
    ellipsis = False
    while dim < stop:
        n = shape[dim]
        low, high = (-n - 3, n + 3) if out_of_bounds else (-n, n)
        form = rng.choice(["int", "slice", "array", "none", "mask", "ellipsis"], p=[0.25, 0.3, 0.25, 0.08, 0.06, 0.06])
        if form == "none":
            items.append(None)
        elif form == "int":
            items.append(int(rng.integers(low, high)))
            dim += 1
        elif form == "slice":
            bounds: list[Any] = [None if rng.random() < 0.3 else int(b) for b in rng.integers(-n - 2, n + 3, 2)]
            items.append(slice(bounds[0], bounds[1], rng.choice(np.array([None, 1, 2, 3, -1, -2], object))))
            dim += 1
        elif form == "array":
            some = tuple(1 if rng.random() < 0.2 else k for k in lookup)
            items.append(rng.integers(low, high, some).astype(rng.choice(np.array(["int32", "int64", "int8"]))))
            dim += 1
        elif form == "mask" and not lookup:
            items.append(rng.random(n) < 0.5)
            dim += 1
            lookup = (int(items[-1].sum()),)
        elif form == "ellipsis" and not ellipsis:
            ellipsis = True
            items.append(...)
            break
    return items[0] if len(items) == 1 and rng.random() < 0.5 else tuple(items)


def random_cases(seed: int, count: int, **options: Any) -> list[tuple[tuple[int, ...], Any]]:
    """Shapes with an index each that NumPy would read (up to bounds)."""
    rng = np.random.default_rng(seed)
    cases = []
    while len(cases) < count:
        shape = tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(1, 4))))
        index = random_index(rng, shape, **options)
        try:
            np.zeros(shape)[clipped(shape, index)]
        except IndexError:
            continue  # arrays that do not broadcast
        cases.append((shape, index))
    return cases


def clipped(shape: tuple[int, ...], index: Any) -> Any:
    """`index` with its ints and int arrays clamped into bounds, as reads clamp them."""
    parts = index if isinstance(index, tuple) else (index,)
    out: list[Any] = []
    used = sum(1 for p in parts if p is not None and p is not ...)
    dim = 0
    for p in parts:
        if p is ...:
            dim += len(shape) - used
        elif p is not None:
            n = shape[dim]
            dim += 1
            if isinstance(p, (int, np.ndarray)) and getattr(p, "dtype", None) != np.bool_:
                p = np.asarray(p).astype(np.int64)
                p = np.clip(np.where(p < 0, p + n, p), 0, n - 1)
                p = int(p) if not p.ndim else p
        out.append(p)
    return tuple(out)
