"""Ops that sum: reductions, products of matrices, contractions in general."""

from __future__ import annotations

import math

from tests.fuzz.grow import Draft, Grower, op
from tests.fuzz.program import Quality
from tests.fuzz.qualities import EPSILON, LARGEST_INT, Unsuitable, kind
from tests.fuzz.shaping import axis_of


@op(4)
def reduction(g: Grower) -> Draft:
    x = g.tame("fibc", ndim=1)
    q = x.quality
    dims = g.random.sample(range(x.ndim), g.integer(1, x.ndim))
    axes: object = None if g.chance(0.3) else dims[0] if len(dims) == 1 else tuple(dims)
    n = x.size if axes is None else math.prod(x.shape[d] for d in dims)
    keep = g.choice(("", ", keepdims=True"))
    e = EPSILON.get(x.dtype, 2.0**-23)
    letter = kind(x.dtype)
    names = {
        "b": ("any", "all", "sum"),
        "c": ("sum", "mean"),
        "i": ("sum", "max", "min", "prod", "any", "all", "mean"),
        "f": ("sum", "sum", "max", "min", "mean", "var", "logsumexp", "norm", "any", "std"),
    }[letter]
    name = g.choice(names)
    if name in ("max", "min") and ((g.smooth and not q.exact) or n == 0):
        raise Unsuitable
    call = f"jnp.{name}({x}, axis={axes}{keep})"
    n = max(n, 1)
    if name in ("any", "all"):
        if not q.exact:
            raise Unsuitable
        return Draft(call, Quality(1.0, 1.0))
    if name in ("max", "min"):
        return Draft(call, q)
    if name == "sum":
        return Draft(
            call,
            lambda d: Quality(
                q.step, LARGEST_INT.get(d, n * q.bound), n * q.noise + (0 if q.exact else n * e * q.bound)
            ),
        )
    if name == "prod":
        return Draft(call, lambda d: Quality(1.0, LARGEST_INT[d]))
    if name == "mean":
        return Draft(call, Quality(None, q.bound, q.noise + 4 * e * q.bound))
    if g.special:
        raise Unsuitable
    if name == "var":
        return Draft(call, Quality(None, q.bound**2 * 2, 4 * q.noise * q.bound + 16 * e * q.bound**2))
    if name == "logsumexp":
        return Draft(
            f"jax.nn.logsumexp({x}, axis={axes}{keep})",
            Quality(None, q.bound + math.log(n), q.noise + 16 * e * (q.bound + 8)),
        )
    if name == "std":
        return Draft(
            f"jnp.sqrt(1 + jnp.var({x}, axis={axes}{keep}))",
            Quality(None, q.bound + 1, 4 * q.noise * q.bound + 16 * e * (1 + q.bound**2)),
        )
    text = f"jnp.sqrt(1 + jnp.sum({x} * {x}, axis={axes}{keep}))"
    return Draft(
        text, Quality(None, q.bound * math.sqrt(n) + 1, q.noise * math.sqrt(n) + 32 * e * (1 + q.bound * math.sqrt(n)))
    )


@op(1.5)
def place_of_extremum(g: Grower) -> Draft:
    x = g.tame("fi", ndim=1, exact=True, where=lambda v: v.size > 0)
    axis = g.choice((None, axis_of(g, x)))
    return Draft(f"jnp.{g.choice(('argmax', 'argmin'))}({x}, axis={axis})", Quality(1.0, float(x.size)))


@op(1.5)
def normalization(g: Grower) -> Draft:
    x = g.tame("f", ndim=1, where=lambda v: v.size > 0)
    if g.special:
        raise Unsuitable
    q, e = x.quality, EPSILON[x.dtype]
    axis = axis_of(g, x)
    text, bound = g.choice(
        [
            (f"jax.nn.softmax({x}, axis={axis})", 1.0),
            (f"jax.nn.log_softmax({x}, axis={axis})", 2 * q.bound + 8),
            (f"{x} / (1 + jnp.mean(jnp.square({x}), axis={axis}, keepdims=True))", q.bound),
            (f"{x} - jnp.mean({x}, axis={axis}, keepdims=True)", 2 * q.bound),
            (f"{x} - jnp.max({x}, axis={axis}, keepdims=True)", 2 * q.bound),
        ]
    )
    if "max(" in text[:9] and g.smooth and not q.exact:
        raise Unsuitable
    return Draft(text, Quality(None, bound, 2 * q.noise + 32 * e * (bound + 1)))


@op(4)
def product(g: Grower) -> Draft:
    x = g.tame("fi", ndim=1)
    k = x.shape[-1]
    forms = []
    for y in g.visible():
        if kind(y.dtype) not in "fi" or not y.ndim or y.quality.bound > 32 or x.size * y.size > g.most * 64:
            continue
        if y.ndim <= 3 and x.ndim <= 3:
            if y.shape[-2 if y.ndim > 1 else -1] == k and (y.ndim < 3 or x.ndim < 3 or x.shape[0] == y.shape[0]):
                forms.append((y, f"{x} @ {y}"))
                forms.append((y, f"jnp.matmul({x}, {y}, preferred_element_type='float32')"))
            if x.ndim == y.ndim == 2:
                if y.shape[1] == k:
                    forms.append((y, f"jnp.einsum('ij,kj->ki', {x}, {y})"))
                    forms.append((y, f"{x} @ {y}.T"))
                    forms.append((y, f"lax.dot_general({x}, {y}, (((1,), (1,)), ((), ())))"))
                if y.shape == x.shape:
                    forms.append((y, f"jnp.einsum('ij,ij->i', {x}, {y})"))
                    forms.append((y, f"lax.dot_general({x}, {y}, (((1,), (1,)), ((0,), (0,))))"))
                    forms.append((y, f"jnp.vdot({x}, {y})"))
                if y.shape[0] == x.shape[0]:
                    forms.append((y, f"jnp.einsum('ki,kj->ij', {x}, {y})"))
            if x.ndim == 3 and y.ndim == 3 and x.shape[0] == y.shape[0] and y.shape[2] == k:
                forms.append((y, f"jnp.einsum('bqd,bkd->bqk', {x}, {y})"))
            if x.ndim == y.ndim == 1 and x.size * y.size <= g.most:
                forms.append((y, f"jnp.outer({x}, {y})"))
            if x.ndim > 1 and y.shape[-1] == k and y.ndim <= 2:
                forms.append((y, f"jnp.inner({x}, {y})"))
            if x.ndim == 3 and y.ndim == 2 and y.shape[0] == k:
                forms.append((y, f"jnp.tensordot({x}, {y}, 1)"))
    if not forms:
        raise Unsuitable
    y, text = g.choice(forms)
    p, q = x.quality, y.quality
    if q.step is not None and q.step < 2**-4:
        raise Unsuitable
    n = max(k, x.shape[0], 1) if "vdot" not in text else max(x.size, 1)
    step = None if p.step is None or q.step is None else p.step * q.step
    e = max(EPSILON.get(x.dtype, 0), EPSILON.get(y.dtype, 0))
    noise = n * (p.noise * q.bound + q.noise * p.bound) + (0 if step else 2 * e * n * p.bound * q.bound)
    return Draft(text, lambda d: Quality(step, LARGEST_INT.get(d) or n * p.bound * q.bound, noise))
