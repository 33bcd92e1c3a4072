"""What JAX answers to each call of the table, kept in ``record.json.xz``: ``python -m tests.calls.record`` asks and writes,
with ``--missing`` about new calls only.

An answer is the classes of an error, or the structure of the result with a leaf's dtype, shape, weakness and values to 8 digits.
"""

from __future__ import annotations

import json
import lzma
import math
import re
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.calls.beside import Failure, Library, outcome
from tests.calls.table import KEYS, Call, calls, tables
from tests.differential.oracle import NAMED_ERRORS, check_values

RECORD = Path(__file__).with_name("record.json.xz")
# How JAX fails where it does not check an argument: an error, but not one that a caller can expect.
ACCIDENTS = re.compile(
    r"has no attribute|index out of range|out of bounds for axis 0 with size 0|not enough values to unpack|len\(\) of unsized"
    r"|AssertionError|TracerArrayConversionError|Cannot determine dtype|float\(\) argument must be|rev dimensions must|verifier errors"
)
REFUSALS = {"TypeError", "ValueError", "IndexError", "NotImplementedError", "RuntimeError"}

# What differs from JAX for a reason: calls, or functions of which every call that differs does so for this one reason.
# An entry that no call differs for fails the test of all calls.
EXCUSED = {
    "JAX's product refuses bools; NumPy's kron takes them": "numpy.kron(b, b)",
    "JAX refuses an array as end value, though it takes a list of them": 'numpy.pad(v, 1, "linear_ramp", end_values=a)',
    "JAX has no wrap=True, here it is NumPy's": "numpy.fill_diagonal(s, 1, wrap=True, inplace=False)",
    "JAX gives a dim to an array that has none": """
        numpy.percentile(n, 50, keepdims=True) | numpy.nanpercentile(n, 50, keepdims=True)""",
    "JAX refuses a size above that of the array, which `size` is to allow": "numpy.extract(b, v, size=2, fill_value=7)",
    "NumPy's put takes an array without dims as one of size 1, JAX's does not": """
        numpy.put(v, i, w, inplace=False) | numpy.put(v, 1, 2.0, mode="clip", inplace=False)""",
    "NumPy's own functions, and their errors for what is no array": "numpy.array_repr | numpy.array_str",
    "the edges between bins are off by an ulp of the greatest, JAX's elsewhere": "numpy.histogram(n)",
    "the residual of a fit that is exact: what rounding leaves of 0": "numpy.polyfit(v, w, 2, full=True)",
    "JAX keeps the type that x64 mode gave a number in a class of its own, TypedFloat or TypedInt": """
        lax.stop_gradient(2.0) | lax.stop_gradient(v) | lax.stop_gradient([v, n])""",
    "the imaginary part is what rounding leaves of 0": "lax.atan2(c, c) | scipy.signal.csd(x, x, nperseg=4)",
    "a Python int takes the dtype of the array beside it; JAX makes an int32 of it, which does not fit": """
        lax.bitwise_and(u, 3) | lax.bitwise_or(u, 3) | lax.bitwise_xor(u, 3)""",
    "JAX fails on its way, with an OverflowError or in a check of the axis; here integers are refused": "lax.cumlogsumexp(n)",
    "JAX's own count of dims raises TypeError for arrays and ValueError for numbers": "lax.slice(m, (0, 1), (2, 3))",
    "a Python int, in JAX a NumPy one": """
        lax.conv_general_shape_tuple | lax.conv_shape_tuple | lax.conv_transpose_shape_tuple""",
    "tokens are trees without arrays, so nothing is passed for them; JAX's is a leaf": "lax.after_all() | lax.create_token()",
    "JAX updates what lies below the diagonal, too": "lax.linalg.cholesky_update(s.T, v)",
    "at -3 the tanh form cancels: an ulp of tanh is 200 of the result": "nn.gelu(n, approximate=True)",
    "JAX rounds a population down to an integer; here it has to be one": """
        random.choice(k, v, (2,)) | random.choice(k, a=m, shape=(2,), replace=False, axis=1)""",
    "JAX's op has no rule for a number beside an array, and fails by accident": "lax.random_gamma_grad(w, 0.5)",
    "it draws from a hidden state: the numbers are others": "lax.rng_uniform(0.0, 1.0, (2,))",
    "SciPy's value, to an ulp; JAX's series is off by up to 400 near the zeros of the function": """
        scipy.special.gammaln | scipy.special.loggamma | scipy.special.log_ndtr | scipy.special.wofz(n)""",
    "JAX gives NaN for these": "scipy.special.bessel_jn(w, v=2)",
    "the angles are computed in float64; in JAX's float32 what should be 0 is 4e-8": "scipy.linalg.dft",
    "SciPy's value to 3 ulps; JAX's is off by 1e-5": """
        scipy.linalg.expm(s) | scipy.linalg.expm(A=s, max_squarings=8) | scipy.linalg.expm_frechet""",
    "JAX reads the lower triangle that it is told to leave alone": "scipy.linalg.expm(s, upper_triangular=True)",
    "results that are 0 or 1/2 but for rounding": """
        scipy.linalg.polar(s) | scipy.linalg.qr_multiply(s, s) | scipy.linalg.solve_sylvester(s, s, s)
        | scipy.fft.idctn(t, axes=(0, 1), norm="ortho")""",
    "SciPy's value to 2 ulps; JAX's betaln cancels": "scipy.stats.beta.logpdf(p, w, p, loc=0.25)",
    "nearer to SciPy's value than JAX's, which is rounded to bfloat16 before the logarithm": "scipy.stats.gumbel_l.logcdf(h)",
    "JAX puts mass between the integers": """
        scipy.stats.bernoulli.logpmf | scipy.stats.bernoulli.pmf | scipy.stats.binom.logpmf | scipy.stats.binom.pmf
        | scipy.stats.betabinom.logpmf(i, 4, w, p, loc=0.25) | scipy.stats.betabinom.pmf(i, 4, w, p, loc=0.25)
        | scipy.stats.geom.logpmf | scipy.stats.geom.pmf | scipy.stats.nbinom.logpmf | scipy.stats.nbinom.pmf
        | scipy.stats.poisson.logpmf(i, w, loc=0.25) | scipy.stats.poisson.pmf(i, w, loc=0.25)""",
}  # fmt: skip
ON_SOME_PROCESSORS = {"below the diagonal stands what rounding leaves of 0": "lax.linalg.schur(s)"}


def answer(library: Library, call: Call, form: str = "arrays") -> Any:
    """What a library answers to a call with arrays, scalars or lists, as JSON has it."""
    given = outcome(lambda: library.run(call, library.forms[form]))
    if isinstance(given, Failure):
        if form != "arrays" and library.name == "jax" and ACCIDENTS.search(given.text):
            return ["accident"]
        ours = library.name != "jax"  # our classes derive from more than JAX's do
        return sorted(given.classes if ours else {given.builtin, *NAMED_ERRORS & set(given.classes)})
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
    if theirs == ["accident"]:  # here it works, or it is refused
        return "" if not _is_error(ours) or REFUSALS & set(ours) else f"gives {_short(ours)}, JAX fails by accident"
    if _is_error(ours) or _is_error(theirs):
        same = _is_error(ours) and _is_error(theirs) and set(theirs) <= set(ours)
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


def _short(given: Any) -> str:
    return str(given)[:200]


def excused(everywhere: bool = False) -> set[str]:
    """The functions and calls that differ for a reason; `everywhere`: on all processors."""
    reasons = EXCUSED if everywhere else EXCUSED | ON_SOME_PROCESSORS
    return {entry.strip() for entries in reasons.values() for entry in entries.split("|")}


def excuse(call: Call, entries: set[str]) -> str | None:
    """The entry that excuses a call, or its function."""
    return next((entry for entry in (repr(call), f"{call.module}.{call.name}") if entry in entries), None)


def every_call() -> list[Call]:
    """The calls of all tables."""
    return [call for module, (lines, _) in tables().items() for call in calls(module, lines)]


def in_other_forms() -> list[tuple[Call, str]]:
    """The calls that can be written with Python scalars, and with lists, instead of arrays."""
    library, found = Library("jax"), []
    for call in every_call():
        if any(set(a.letters) - set(KEYS) for a in call.arguments):
            for form in ("scalars", "lists"):
                if not isinstance(outcome(lambda c=call, f=form: library.bound(c, library.forms[f])), Failure):
                    found.append((call, form))
    return found


def key(call: Call, form: str) -> str:
    """The name of an answer in the record."""
    return repr(call) if form == "arrays" else f"{call!r} of {form}"


def recorded() -> dict[str, Any]:
    """JAX's answers by call."""
    return json.loads(lzma.decompress(RECORD.read_bytes()))


if __name__ == "__main__":
    jax = Library("jax")
    asked = [(call, "arrays") for call in every_call()] + in_other_forms()
    known = recorded() if "--missing" in sys.argv else {}
    found = {key(call, form): answer(jax, call, form) for call, form in asked if key(call, form) not in known}
    found = {k: v for k, v in (known | found).items() if k in {key(*a) for a in asked}}
    RECORD.write_bytes(lzma.compress(json.dumps(found).encode()))
