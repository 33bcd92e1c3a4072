"""Ways of calling a function other than eagerly: each gives the outcome that has to equal another one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, PartitionSpec
from tests.calls.beside import Failure, Library, difference, outcome
from tests.calls.table import Call

Fun = Callable[..., Any]
# A function or a call, and a way in which it differs for a reason.
EXCUSED: dict[tuple[str, str], str] = {
    ("floor_divide", "under debug_nans"): "the remainder of a division by 0 is NaN",
    ("reduce_precision", "under differentiation"): "both round: jvp the tangent, vjp the cotangent",
    ("scan", "under disable_jit"): "Python's steps are as weak as each of them is, and the first one is weak",
    **{
        (
            f"scipy.stats.{name}(p, w, loc=0.25)",
            "under differentiation",
        ): "at 0 the density is infinite: forward it meets a tangent of 0, backward the clamp of the edge, as in JAX"
        for name in ("chi2.cdf", "chi2.sf", "chi2.logsf", "gamma.cdf", "gamma.sf", "gamma.logsf")
    },
    (
        "scipy.stats.pareto.ppf(h, w)",
        "under differentiation",
    ): "outside of 0 to 1 it is NaN, which backward meets the logarithm, as in JAX",
}
# Results that one device computes otherwise than a batch or a cluster of it: rounding decides about signs or digits.
ULPS = 64


def derived(fun: Fun, dynamic: list[Any], eager: Any, ours: Library) -> Iterator[tuple[str, str]]:
    """Each way that takes the arguments as they are, and what differs in it."""
    copies = sw.tree.map(lambda x: x.copy() if isinstance(x, sw.Array) else x, dynamic)
    every = tuple(range(len(dynamic)))
    mesh = Mesh(np.array(sw.devices()[:2]), ("d",))
    spec = PartitionSpec()
    mapped = sw.shard_map(fun, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    ways: dict[str, Callable[[], Any]] = {
        "under disable_jit": lambda: _without_jit(fun, dynamic),
        "donated": lambda: sw.jit(fun, donate_argnums=every)(*copies),
        "inside shard_map": lambda: mapped(*dynamic),
    }
    if not any(_holds_nan(x) for x in sw.tree.leaves((dynamic, eager))):
        ways["under debug_nans"] = lambda: _without_nans(fun, dynamic)
    for way, call in ways.items():
        yield way, difference(outcome(call), eager, ours, ours, ulps=ULPS)
    types = sw.tree.map(
        lambda x: sw.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False)), eager
    )
    yield "of eval_shape", difference(sw.eval_shape(fun, *dynamic), types, ours, ours, values=False)
    avals = outcome(lambda: sw.make_jaxpr(fun)(*dynamic).out_avals)
    leaves = sw.tree.leaves(types)
    yield (
        "of make_jaxpr",
        difference(avals if isinstance(avals, Failure) else list(avals), leaves, ours, ours, values=False),
    )


def _without_jit(fun: Fun, dynamic: list[Any]) -> Any:
    with sw.disable_jit():
        return fun(*dynamic)


def _without_nans(fun: Fun, dynamic: list[Any]) -> Any:
    with sw.debug_nans():
        return fun(*dynamic)


def _holds_nan(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, np.inexact) and bool(jnp.isnan(x).any())


def batched(fun: Fun, dynamic: list[Any], eager: Any, ours: Library) -> str:
    """What of `vmap` differs from a loop over two entries, the second of which has its values the other way round."""
    other = sw.tree.map(_other, dynamic)
    second = outcome(lambda: fun(*other))
    if isinstance(second, Failure):
        return ""
    if not all(isinstance(x, sw.Array) for x in sw.tree.leaves(dynamic)):
        return ""
    stacked = sw.tree.map(lambda x, y: jnp.stack([x, y]), dynamic, other)
    both = outcome(lambda: sw.vmap(fun)(*stacked))
    if isinstance(both, Failure):
        return difference(both, eager, ours, ours)
    for k, single in enumerate((eager, second)):
        entry = sw.tree.map(lambda x, k=k: x[k], both)
        problem = difference(entry, single, ours, ours, ulps=ULPS)
        if problem:
            return f"at {k}: {problem}"
    return ""


def _other(x: Any) -> Any:
    if isinstance(x, sw.Array) and jnp.issubdtype(x.dtype, sw.dtypes.prng_key):
        return sw.random.fold_in(x, 1)
    return jnp.flip(x) if isinstance(x, sw.Array) and x.ndim == 1 else x


def derivatives(fun: Fun, dynamic: list[Any]) -> str:
    """What of `jvp` and `vjp` differs: both are to give the same product of a tangent and a cotangent."""
    leaves, tree = sw.tree.flatten(dynamic)
    places = [k for k, x in enumerate(leaves) if _differentiable(x)]
    if not places:
        return ""

    def smooth(*xs: Any) -> list[Any]:
        full = list(leaves)
        for k, x in zip(places, xs, strict=True):
            full[k] = x
        return [y for y in sw.tree.leaves(fun(*sw.tree.unflatten(tree, full))) if _differentiable(y)]

    points = [leaves[k] for k in places]
    tangents = [_direction(x, k) for k, x in enumerate(points)]
    forward = outcome(lambda: sw.jvp(smooth, points, tangents))
    backward = outcome(lambda: sw.vjp(smooth, *points))
    for way, given in (("jvp", forward), ("vjp", backward)):
        if isinstance(given, Failure) and given.builtin not in ("TypeError", "ValueError", "NotImplementedError"):
            return f"{way} raises {given.text}"
    if isinstance(forward, Failure) or isinstance(backward, Failure):
        return ""
    values, pushed = forward
    if not values:
        return ""
    cotangents = [_direction(y, 5 + k) for k, y in enumerate(values)]
    pulled = outcome(lambda: backward[1](cotangents))
    if isinstance(pulled, Failure):
        if "transpose_solve" in pulled.text:  # as the call asks
            return ""
        return f"vjp raises {pulled.text}"
    for xs, like, way in ((pushed, values, "jvp"), (pulled, points, "vjp")):
        facts = [[(str(x.dtype), x.shape) for x in side] for side in (xs, like)]
        if facts[0] != facts[1]:
            return f"{way} gives {facts[0]} for {facts[1]}"
    a, size = _product(pushed, cotangents)
    b, _ = _product(pulled, tangents)
    if not (np.isfinite(a) and np.isfinite(b)):
        return "" if np.isfinite(a) == np.isfinite(b) else f"jvp gives {a}, vjp {b}"
    narrow = any(str(x.dtype) in ("bfloat16", "float16") for x in (*points, *values))
    limit = (5e-2 if narrow else 2e-4) * max(1.0, size)
    return "" if abs(a - b) <= limit else f"jvp gives {a}, vjp {b}"


def _differentiable(x: Any) -> bool:
    return isinstance(x, sw.Array) and bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _direction(x: Any, seed: int) -> Any:
    values = np.cos(np.arange(x.size) * 1.7 + seed).reshape(x.shape)
    return jnp.asarray(values * (1 + 0.5j) if "complex" in str(x.dtype) else values, x.dtype)


def _product(xs: list[Any], ys: list[Any]) -> tuple[float, float]:
    with np.errstate(invalid="ignore"):
        parts = [
            np.asarray(x).astype(np.complex128) * np.asarray(y).astype(np.complex128)
            for x, y in zip(xs, ys, strict=True)
        ]
        return float(sum(p.sum().real for p in parts)), float(sum(np.abs(p).sum() for p in parts))


def by_keyword(call: Call, eager: Any, ours: Library, jax: Library) -> str:
    """What differs where every argument that JAX's signature names is given by that name."""
    try:
        signature = inspect.signature(jax.function(call.module, call.name))
    except (TypeError, ValueError):
        return ""
    names = list(signature.parameters.values())
    args, kwargs = ours.bound(call, ours.arrays)
    count = 0
    for parameter in names[: len(args)]:
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            break
        count += 1
    named = names[count : len(args)]
    if not named or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in named):
        return ""
    given = dict(zip([p.name for p in named], args[count:], strict=True))
    fun = ours.function(call.module, call.name)
    result = outcome(lambda: fun(*args[:count], **given, **kwargs))
    if call.then and not isinstance(result, Failure):
        made = result
        result = outcome(lambda: made(*eval(f"({call.then},)", ours.arrays)))
    return difference(result, eager, ours, ours, ulps=ULPS)
