"""Dtypes and weak types of results: every function of one or two operands, of every dtype, weak or not, or a scalar.

The operands have no dims, or one: some functions give weak types only without. JAX's answers are kept in
``promotion.json.xz``, for both eras. ``python -m tests.calls.promotion jax latest FILE`` writes those of the JAX of this
interpreter; ``keep SEED LATEST`` puts the two files together.
"""

from __future__ import annotations

import functools
import importlib
import json
import lzma
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).with_name("promotion.json.xz")

DTYPES = (
    "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64 int32* float32* complex64*".split()
)
SCALARS = {
    "py_b": True, "py_i": 2, "py_f": 2.0, "py_c": 2j, "np_f64": np.float64(2), "np_i64": np.int64(2), "np_f32": np.float32(2),
    "np_b": np.bool_(True), "np_u8": np.uint8(2), "py_big": 300, "py_neg": -1,
}  # fmt: skip
# What is asked of operands with a dim: how weak types and scalars meet other types.
VECTOR_DTYPES = "bool int8 int32 float16 float32 int32* float32* complex64*".split()
BINARY = """
jnp: add subtract multiply divide true_divide floor_divide remainder mod fmod divmod power pow float_power maximum minimum fmax
    fmin arctan2 atan2 hypot logaddexp logaddexp2 heaviside copysign nextafter ldexp bitwise_and bitwise_or bitwise_xor left_shift
    right_shift gcd lcm equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor outer dot matmul
    inner vdot tensordot isclose array_equal append
    cross convolve
sp: xlogy xlog1py beta betaln zeta gammainc rel_entr kl_div
st: t.logpdf gamma.logpdf gamma.sf chi2.sf pareto.pdf poisson.pmf poisson.cdf geom.pmf bernoulli.pmf
"""
OPERATORS = """
    add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or lshift rlshift rshift rrshift eq ne
    lt ge divmod rdivmod matmul
"""
UNARY = """
jnp: abs negative positive sign square sqrt sin exp reciprocal rint floor ceil trunc round conj real imag angle isnan isfinite
    logical_not invert signbit sinc i0 exp2 log1p cbrt deg2rad nan_to_num frexp modf sum prod mean var std max min median cumsum
    cumprod any all ptp argsort sort ravel asarray array copy ones_like zeros_like nansum nanmean average bitwise_count fabs
    rad2deg isreal iscomplex gradient diff log10 log2 trapezoid
lax: neg sin abs sign is_finite square erf population_count exp conj
nn: relu gelu softmax sigmoid silu elu
sp: erf expit gammaln ndtri entr logit logsumexp i0 digamma
st: norm.logpdf norm.cdf cauchy.pdf cauchy.ppf expon.pdf laplace.pdf laplace.cdf logistic.pdf logistic.cdf uniform.pdf
"""


class Namespaces:
    """The modules of one library in which the names above are."""

    def __init__(self, library: str, shape: tuple[int, ...] = ()) -> None:
        self.shape = shape
        self.jax = importlib.import_module(library)
        self.jnp, self.lax, self.nn = self.jax.numpy, self.jax.lax, self.jax.nn
        self.sp, self.st = (importlib.import_module(f"{library}.scipy.{name}") for name in ("special", "stats"))

    def function(self, place: str, name: str) -> Callable[..., Any]:
        """The function called `name`, which may have a dot, of a module above."""
        return functools.reduce(getattr, name.split("."), getattr(self, place))

    def operand(self, name: str) -> Any:
        """A type, a weak one if its name ends in a star."""
        dtype = np.dtype(getattr(self.jnp, name.rstrip("*")))
        return self.jax.ShapeDtypeStruct(self.shape, dtype, weak_type=name.endswith("*"))

    def facts(self, fun: Callable[..., Any], *operands: str) -> Any:
        """What `fun` of these operands gives: dtypes and weakness, or the class of the error."""
        types = [self.operand(o) for o in operands if o not in SCALARS]

        def call(*given: Any) -> Any:
            rest = iter(given)
            return fun(*[SCALARS[o] if o in SCALARS else next(rest) for o in operands])

        try:
            return _text(self.jax.eval_shape(call, *types))
        except Exception as error:
            return next(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins")


def _text(out: Any) -> str:
    if isinstance(out, tuple | list):
        return " ".join(_text(x) for x in out)
    return f"{out.dtype}{'*' if getattr(out, 'weak_type', False) else ''}"


def _listed(table: str) -> Iterator[tuple[str, str]]:
    module = ""
    for word in table.split():
        if word.endswith(":"):
            module = word[:-1]
        else:
            yield module, word


def questions(module: Namespaces) -> Iterator[tuple[str, list[tuple[str, ...]], Callable[..., Any]]]:
    """Each function's name, the operands that it is asked about, and the function."""
    types = VECTOR_DTYPES if module.shape else DTYPES
    pairs = [(a, b) for a in types for b in types]
    mixed = [pair for a in types for s in SCALARS for pair in ((a, s), (s, a))]
    for place, name in _listed(BINARY):
        yield f"{place}.{name}", pairs + mixed, module.function(place, name)
    for name in OPERATORS.split():
        own = pairs + [pair for pair in mixed if pair[0] in types]
        yield f"__{name}__", own, lambda x, y, name=name: getattr(x, f"__{name}__")(y)
    yield "where", pairs + mixed, lambda x, y: module.jnp.where(True, x, y)
    yield "concatenate", pairs, lambda x, y: module.jnp.concatenate([module.jnp.ravel(x), module.jnp.ravel(y)])
    yield "stack", pairs + mixed, lambda x, y: module.jnp.stack([x, y])
    yield "clip", pairs + mixed, lambda x, y: module.jnp.clip(x, y, None)
    yield "select", pairs, lambda x, y: module.jnp.select([True], [x], y)
    alone = [(a,) for a in (*types, *SCALARS)]
    for place, name in _listed(UNARY):
        yield f"{place}.{name}", alone, module.function(place, name)


def answers(library: str, shape: tuple[int, ...]) -> dict[str, str]:
    """For each function the answers to its questions, in their order."""
    module = Namespaces(library, shape)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, operands, fun in questions(module):
            found[name] = "|".join(module.facts(fun, *o) for o in operands)
    return found


def recorded(dialect: str, rank: int) -> dict[str, str]:
    """JAX's answers of an era to the questions about operands of a rank."""
    return json.loads(lzma.decompress(RECORD.read_bytes()))[dialect][rank]


if __name__ == "__main__":
    if sys.argv[1] == "keep":
        both = {d: json.loads(Path(f).read_text()) for d, f in zip(("seed", "latest"), sys.argv[2:], strict=True)}
        RECORD.write_bytes(lzma.compress(json.dumps(both, sort_keys=True).encode()))
    else:
        Path(sys.argv[3]).write_text(json.dumps([answers(sys.argv[1], shape) for shape in ((), (2,))]))
