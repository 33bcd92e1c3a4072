"""What JAX answers to each call of the table, kept in ``record.json.xz``: ``python -m tests.calls.record`` asks and writes.

An answer is the classes of an error, or the structure of the result with a leaf's dtype, shape, weakness and values to 8 digits.
"""

from __future__ import annotations

import builtins
import json
import lzma
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.calls.beside import Failure, Library, outcome
from tests.calls.table import Call, calls, tables
from tests.differential.oracle import NAMED_ERRORS, check_values

RECORD = Path(__file__).with_name("record.json.xz")

# Functions with a call that differs from JAX's for a reason; the ways of calling still hold them to themselves.
EXCUSED = {
    "JAX refuses it, here it has its plain meaning": """
        numpy.kron numpy.pad numpy.fill_diagonal lax.bitwise_and lax.bitwise_or lax.bitwise_xor lax.random_gamma_grad""",
    "both refuse it, as errors of other families": "lax.cumlogsumexp lax.reshape",
    "another name of the class, or None for JAX's traced None": """
        numpy.unique_all numpy.unique_counts numpy.unique_inverse lax.after_all lax.create_token scipy.sparse.linalg.gmres
        lax.stop_gradient""",
    "a Python int, in JAX a NumPy one": """
        lax.conv_general_shape_tuple lax.conv_shape_tuple lax.conv_transpose_shape_tuple""",
    "not here": "lax.stage lax.shape_as_value lax.rng_uniform random.key_dtype scipy.stats.poisson.entropy",
    "rounds otherwise, about a value of 0 or after cancellation; the tests of exactness say which is nearer": """
        numpy.histogram numpy.polyfit lax.atan2 nn.gelu scipy.special.gammaln scipy.special.loggamma scipy.special.log_ndtr
        scipy.linalg.dft scipy.linalg.expm scipy.linalg.expm_frechet scipy.linalg.polar scipy.linalg.qr_multiply
        scipy.linalg.solve_sylvester scipy.fft.idctn scipy.signal.csd scipy.stats.beta.logpdf scipy.stats.beta.logsf
        scipy.stats.gumbel_l.logcdf""",
    "JAX's value is wrong: NaN, mass between integers, or what it read of the other triangle": """
        scipy.special.bessel_jn lax.linalg.cholesky_update
        scipy.stats.bernoulli.logpmf scipy.stats.bernoulli.pmf scipy.stats.betabinom.logpmf scipy.stats.betabinom.pmf
        scipy.stats.binom.logpmf scipy.stats.binom.pmf scipy.stats.geom.logpmf scipy.stats.geom.pmf
        scipy.stats.nbinom.logpmf scipy.stats.nbinom.pmf scipy.stats.poisson.logpmf scipy.stats.poisson.pmf""",
    "a weak count of iterations in JAX": "lax.linalg.qdwh",
}


def answer(library: Library, call: Call) -> Any:
    """What a library answers to a call with arrays, as JSON has it."""
    given = outcome(lambda: library.run(call, library.arrays))
    if isinstance(given, Failure):
        return sorted({given.builtin, *NAMED_ERRORS & set(given.classes)})
    leaves, tree = library.jax.tree.flatten(given)
    return [str(tree), [_leaf(x, library) for x in leaves]]


def _leaf(x: Any, library: Library) -> Any:
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        return repr(x).replace(library.name, "jax").split(" at 0x")[0]
    dtype, weak = str(x.dtype), bool(getattr(x, "weak_type", False))
    if dtype.startswith("key<"):
        x = library.jax.random.key_data(x)
    values: Any = np.asarray(x)
    if values.dtype.kind == "c":
        values = np.stack([values.real, values.imag], -1)
    if values.dtype.kind not in "biu":
        values = values.astype(np.float64)
    return [dtype, list(x.shape), weak, [_rounded(v) for v in values.ravel().tolist()]]


def _rounded(value: Any) -> Any:
    return float(f"{value:.8g}") if isinstance(value, float) and math.isfinite(value) else value


def differs(ours: Any, theirs: Any, ulps: float = 64) -> str:
    """What differs between two answers, or an empty text."""
    if _is_error(ours) or _is_error(theirs):
        # Our own classes derive from more than JAX's do.
        same = _is_error(ours) and _is_error(theirs) and set(theirs) <= {*ours, *_families(ours)}
        return "" if same else f"gives {_short(ours)}, JAX {_short(theirs)}"
    if ours[0].replace("shardwise", "jax") != theirs[0]:
        return f"is a {ours[0]}, JAX's {theirs[0]}"
    for mine, real in zip(ours[1], theirs[1], strict=True):
        if isinstance(mine, str) or isinstance(real, str):
            if mine != real:
                return f"is {_short(mine)}, JAX's {_short(real)}"
        elif mine[:3] != real[:3]:
            return f"has (dtype, shape, weak) {mine[:3]}, JAX {real[:3]}"
        else:
            kind = "float32" if real[0] == "complex64" else str(real[0])
            try:
                if "float" in kind:
                    a, b = (np.array(x[3], np.float64).astype(_dtype(kind)) for x in (mine, real))
                    check_values(a, b, "", ulps)
                elif mine[3] != real[3]:
                    return f"is {_short(mine[3])}, JAX's {_short(real[3])}"
            except AssertionError as error:
                return str(error)
    return ""


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _is_error(given: Any) -> bool:
    return len(given) != 2 or not isinstance(given[1], list)


def _families(names: list[str]) -> set[str]:
    return {k.__name__ for n in names if hasattr(builtins, n) for k in getattr(builtins, n).__mro__[:-3]}


def _short(given: Any) -> str:
    return str(given)[:200]


def excused() -> set[str]:
    """The names of functions that differ for a reason."""
    return {name for names in EXCUSED.values() for name in names.split()}


def every_call() -> list[Call]:
    """The calls of all tables."""
    return [call for module, (lines, _) in tables().items() for call in calls(module, lines)]


def recorded() -> dict[str, Any]:
    """JAX's answers by call."""
    return json.loads(lzma.decompress(RECORD.read_bytes()))


if __name__ == "__main__":
    jax = Library("jax")
    found = {repr(call): answer(jax, call) for call in every_call()}
    RECORD.write_bytes(lzma.compress(json.dumps(found).encode()))
