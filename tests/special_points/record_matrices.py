"""Record what JAX answers at special matrices: `python tests/special_points/record_matrices.py [name...]` (an hour), since it
compiles each function for a second. `tests/test_records.py` compares some entries with the JAX that is installed.

One entry holds a function, a type and a family of matrices: for each result values and gradients with four digits, and of
forward derivatives whether they are finite. `null` stands for what JAX cannot do.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.special_points.matrices import FAMILIES, derivatives, library, stack
from tests.special_points.matrix_functions import LAX, NUMPY, SCIPY, Case

RECORD = Path(__file__).parent / "matrices.jsonl.gz"
TABLES = {"jnp.linalg": NUMPY, "scipy.linalg": SCIPY, "lax.linalg": LAX}
# Nothing in these differs between real and complex numbers, or between sizes.
PLAIN = {"cross", "diagonal", "matmul", "matrix_transpose", "multi_dot", "outer", "tensordot", "trace", "vecdot", "block_diag",
         "circulant", "companion", "convolution_matrix", "fiedler", "fiedler_companion", "hankel", "leslie", "toeplitz",
         "lu_pivots_to_permutation"}  # fmt: skip


def entries() -> Iterator[tuple[str, Case, str, str, int]]:
    """Every case with the types and families that it is tried at, and the key of its entry."""
    for table, functions in TABLES.items():
        for name, cases in functions.items():
            for i, case in enumerate(cases):
                for dtype in ("float32", "complex64"):
                    for kind in case.kinds:
                        for f in range(len(FAMILIES[kind])):
                            if not (f or dtype == "complex64") or (name not in PLAIN and (not f or dtype == "float32")):
                                yield f"{table}.{name}[{i}] {dtype} {kind}{f}", case, dtype, kind, f


def written(x: np.ndarray[Any, Any], numbers: bool) -> Any:
    """Nested lists of numbers, or of n(an), +(inf), -(inf) and . for what is finite."""
    if x.dtype.kind == "c":
        return [written(x.real, numbers), written(x.imag, numbers)]
    if x.dtype.kind in "iub":
        return x.tolist()
    flat = x.reshape(x.shape[0], -1) if x.size else x.reshape(x.shape[0], 0)
    marks = np.where(np.isnan(flat), "n", np.where(np.isfinite(flat), ".", np.where(flat > 0, "+", "-")))
    lines = ["".join(row) for row in marks]
    if not numbers:
        return lines
    short = lambda v: 0 if v == 0 else float(f"{v:.4g}")  # noqa: E731
    return [lines, [[short(v) if np.isfinite(v) else 0 for v in row] for row in flat.tolist()]]


def record_of(found: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        mode: [[x.dtype.name, list(x.shape[1:]), written(x, mode != "jvp")] for x in map(np.asarray, leaves)]
        for mode, leaves in found.items()
    }


def answered(lib: Any, case: Case, xs: np.ndarray) -> dict[str, list[Any]] | None:
    """What JAX answers on the whole family at once, by mode."""
    jax = lib.jax

    def modes(*names: str) -> dict[str, Any]:
        def together(x: Any) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for mode in names:
                found |= derivatives(lib, case.call, x, mode)
            return found

        return jax.tree_util.tree_map(np.asarray, jax.jit(jax.vmap(together))(xs))

    # Some have only a forward derivative, or none, or do not take the shape.
    for names in (("jvp", "vjp"), ("jvp",), ("value",)) if case.derivative else (("value",),):
        try:
            return modes(*names)
        except Exception:
            continue
    return None


def main(arguments: list[str]) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    warnings.simplefilter("ignore")
    import jax
    import jax.lax.linalg
    import jax.scipy.linalg

    lib = library(jax)
    kept = {}
    if RECORD.exists():
        kept = {k: v for k, v in map(json.loads, gzip.decompress(RECORD.read_bytes()).decode().splitlines())}
    out = {}
    for key, case, dtype, kind, f in entries():
        wanted = not arguments or any(a in key for a in arguments)
        if wanted or key not in kept:
            found = answered(lib, case, stack(FAMILIES[kind][f], dtype)[1])
            kept[key] = None if found is None else record_of(found)
        out[key] = kept[key]
        print(key, flush=True)
    text = "".join(json.dumps([k, v], separators=(",", ":")) + "\n" for k, v in out.items())
    RECORD.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
