"""`checkify`: what it says of a program's checks is what JAX says, through every kind of equation."""

from __future__ import annotations

import pytest

from tests.differential.oracle import compare

SETUP = """
from jax.experimental import checkify
from jax.experimental.checkify import check, debug_check, checkify as checked
every, user, nan, div, index = (checkify.all_checks, checkify.user_checks, checkify.nan_checks, checkify.div_checks,
    checkify.index_checks)
v = jnp.arange(4.0)
def told(f, *args, errors=every):
    err, out = jax.jit(checked(f, errors))(*args)
    return [err.get(), out]
def eager(f, *args):
    err, out = checked(f, every)(*args)
    return [err.get(), out]
def kind(call):
    try: return call()
    except Exception as error: return [isinstance(error, c) for c in (ValueError, TypeError, checkify.JaxRuntimeError)]
def positive(x):
    check(x > 0, '{} and {named} must be positive', x, named={'a': x * 2})
    return jnp.log(x)
result = None
"""

PROGRAMS = {
    "checks of users": """
result = [eager(positive, 2.), eager(positive, -2.), told(positive, -2.), told(positive, -2., errors=user), told(positive, -2., errors=nan),
    told(lambda: check(False, 'never')), told(lambda x: (check(True, 'a'), check(x < 1, 'b'), check(x < 2, 'c'), x)[-1], 3)]
""",
    "outside of checkify": """
result = [kind(lambda: positive(jnp.float32(-1))), kind(lambda: positive(jnp.float32(1))), kind(lambda: jax.jit(positive)(1.)),
    kind(lambda: check(1, 'x')), kind(lambda: check(jnp.ones(2) > 0, 'x')), kind(lambda: check(True, '{}', 'text')),
    kind(lambda: check(jnp.array(False), 'x')), kind(lambda: jax.jit(positive).lower(1.)), kind(lambda: jax.vmap(positive)(v)),
    kind(lambda: lax.scan(lambda c, x: (c, positive(x)), 0, v + 1)), kind(lambda: jax.grad(positive)(2.)),
    kind(lambda: jax.eval_shape(positive, 1.).shape), kind(lambda: checkify.check_error(3)),
    kind(lambda: checked(positive)(jnp.float32(-1))[0].throw()), kind(lambda: checked(positive)(1.)[0].throw())]
""",
    "debug checks": """
def f(x): debug_check(x > 0, 'not {x}', x=x); return x
result = [f(jnp.float32(-1)), jax.jit(f)(-1.), told(f, jnp.float32(-1)), jax.vmap(f)(v), jax.grad(f)(-1.),
    lax.scan(lambda c, x: (c, f(x)), 0, v)[1]]
""",
    "checks of operations": """
result = [told(jnp.sin, jnp.inf), told(lambda x, y: x / y, 1., 0.), told(lambda x, y: x / y, 0., 0.),
    told(lambda x, y: x / y, v, v, errors=nan), told(lambda x, i: x[i], v, 5), told(lambda x, i: x[i], v, -7),
    told(lambda x, i: x[i], v, -4), told(lambda x, i: x[i], v, jnp.array([0, 9, 11])), told(lambda x, i: x.at[i].set(1.), v, 4),
    told(lambda x, i: x.at[i].add(1.), v, jnp.array([1, -6])), told(lambda x, i: lax.dynamic_slice(x, (i,), (2,)), v, 3),
    told(lambda x, i: lax.dynamic_update_slice(x, x[:2], (i,)), v, 3), told(lambda x, i, j: x[i, j], jnp.ones((2, 3)), 1, 3),
    told(lambda x: jnp.sum(x / 2) + x @ x, v), told(lambda x: x // 0, jnp.arange(3)), told(jax.nn.relu, v),
    told(lambda x: jnp.take(x, jnp.array([1, 5]), mode='clip'), v), told(lambda x: jnp.log(x)[3], v - 1, errors=index),
    told(lambda x, i: x.at[i].apply(jnp.exp), v, 5, errors=index), told(lambda x, i: x.at[i].apply(jnp.exp), v, 1, errors=index)]
""",
    "called functions": """
@jax.jit
def f(x): return positive(x), x / (x - 1)
result = [told(f, 1.), eager(f, -1.), told(lambda x: f(f(x)[1])[1], 2.), told(lambda x: (f(x), f(x - 2)), 2., errors=user),
    told(jax.checkpoint(positive), -1.), told(lambda x: jax.named_call(positive, name='n')(x), -1.)]
""",
    "branches": """
def f(p, x): return lax.cond(p, positive, lambda x: 1 / x, x)
def g(i, x): return lax.switch(i, [positive, lambda x: x, jnp.log], x)
result = [eager(f, True, 0.), told(f, False, 0.), told(f, True, 1.), told(f, False, 1.), told(g, 0, -1.), told(g, 1, -1.), told(g, 2, -1.),
    told(lambda x: (positive(x), f(False, x - 2)), 2.), told(lambda x: (positive(-x), f(False, x - 2)), 2.)]
""",
    "scans": """
def f(x): return lax.scan(lambda c, x: (c + x, (positive(3 - x), c / x)), 0., x)
def carried(x): return lax.fori_loop(0, 5, lambda i, c: (check(c < 3, 'at {i}: {c}', i=i, c=c), c + 1)[1], x)
result = [told(f, v, errors=user), told(f, v, errors=div), told(f, v + 1, errors=nan), eager(f, v[1:3]), eager(carried, 0),
    told(carried, -9),
    told(lambda x: (positive(x[0]), f(x)), v), told(lambda x: lax.map(positive, x), v - 1),
    told(lambda x: lax.scan(lambda c, x: (lax.cond(x > 1, positive, lambda x: x, -x), x), 0., x), v)]
""",
    "while loops": """
def f(x): return lax.while_loop(lambda x: x < 4, lambda x: (check(x != 2, 'two at {}', x), x + 1)[1], x)
def g(x): return lax.while_loop(lambda x: (check(x != 2, 'condition at {}', x), x < 4)[1], lambda x: x + 1, x)
def h(x): return lax.while_loop(lambda x: 1 / x < 4, lambda x: x / 0, x)
result = [eager(f, 0), told(f, 3), eager(g, 0), told(g, 2), told(g, 3), told(h, 0.), told(lambda x: (f(x), g(x)), 0)]
""",
    "mapped functions": """
def batched(f, *args, errors=every):
    err, out = jax.vmap(checked(f, errors))(*args)
    return [err.get(), out]
result = [batched(positive, v), batched(positive, v + 1), told(jax.vmap(positive), v - 1, errors=user), told(jax.vmap(positive), v + 1),
    told(jax.vmap(lambda i, x: x[i], (0, None)), jnp.array([0, 8]), v), batched(lambda x: lax.cond(x > 1, positive, lambda x: x, x), -v),
    kind(lambda: jax.vmap(checked(positive))(v)[0].throw()), told(lambda x: jax.vmap(lambda y: x / y)(v), 1.),
    told(jax.vmap(jax.vmap(positive)), -jnp.arange(4.).reshape(2, 2), errors=user),
    kind(lambda: checked(jax.vmap(lambda x: lax.while_loop(lambda x: x < 4, lambda x: (check(x < 4, 'late'), x + 1)[1], x)))(v)),
    batched(lambda x: lax.scan(lambda c, y: (c + 1, positive(c)), x, None, 3)[0], -v, errors=user)]
""",
    "derivatives": """
def f(x): check(x > 0, 'f'); return lax.scan(lambda c, y: (positive(c) * y, c), x, v)[0] * jax.jit(positive)(x)
result = [told(jax.grad(positive), -1.), told(jax.value_and_grad(f), -2., errors=user),
    told(jax.grad(jnp.sqrt), 0.), [jax.grad(lambda x: checked(positive)(x)[1])(2.)],
    [(e.get(), g) for g, e in [jax.grad(lambda x: checked(f)(x)[::-1],
    has_aux=True)(-2.)]], told(lambda x: jax.jvp(positive, (x,), (x,)), -1.), told(jax.hessian(jnp.log), 2.)]
""",
    "indices that are known when tracing": """
m = jnp.ones((3, 5))
result = [told(f, m, errors=index)[0] for f in (lambda x: x[7], lambda x: x[-7], lambda x: x[1, 9], lambda x: x[0, 9] + x[8, 0],
    lambda x: x[7, jnp.array([0, 1])], lambda x: x[jnp.array([0, 1]), 7], lambda x: x.at[7].get(), lambda x: x.at[-9].get(mode='fill'),
    lambda x: x.at[7].set(1.), lambda x: x.at[7, 1].add(1.), lambda x: x[np.array([1, 6])], lambda x: x.at[2, -6].multiply(2.),
    lambda x: x[2, -5], lambda x: x[-3:9, 4], jax.jit(lambda x: x[3]), jax.vmap(lambda r: r[5]))]
""",
    "indices made of traced scalars": """
m = jnp.ones((3, 5))
rows = lambda x, i: x.at[i].add(1.)
result = [told(rows, m, i, errors=index) for i in (((1, 2), (0, 4)), ((1, 20), (0, 4)), (((0, 1), (1, 20)), 3), ((0, 1), 7))]
result += [told(lambda x, i: x[[i, 1]], m, i, errors=index) for i in (0, 5)]
""",
    "no tracers are kept": """
def body(c): return c[0] - 1, v[c[0]] / c[0]
loop = checked(lambda: lax.while_loop(lambda c: c[0] > -1, body, (2, 0.)), every)
@jax.custom_vjp
def g(x): return jnp.sin(x)
g.defvjp(lambda x: (g(x), 2. * x), lambda r, ct: (jnp.cos(r / 2.) * ct,))
with jax.checking_leaks():
    result = [loop()[0].get(), jax.jit(loop)()[0].get(), jax.grad(lambda x: checked(g, every)(x)[1])(3.),
        jax.jit(lambda x: checked(g, every)(x)[1])(3.), jax.vmap(lambda x: checked(g, every)(x)[1])(v)]
""",
    "functions with rules of their own": """
@jax.custom_jvp
def f(x): check(x > 0, 'f'); return x * 2
@f.defjvp
def rule(p, t): check(p[0] < 5, 'rule'); return f(*p), 3 * t[0]
@jax.custom_vjp
def g(x): check(x > 0, 'g'); return x * 2
def fwd(x): check(x < 5, 'fwd'); return g(x), x
def bwd(x, ct): check(x != 3, 'bwd'); return (ct * 5,)
g.defvjp(fwd, bwd)
result = [told(f, 1.), told(f, -1.), eager(jax.jit(g), -1.), eager(jax.grad(f), 7.), told(jax.grad(g), 7.), told(jax.grad(g), 3.),
    told(lambda x: lax.map(g, x), v), told(jax.vmap(f), v, errors=user), told(jax.vmap(jax.grad(f)), v + 4, errors=user),
    jax.grad(lambda x: checked(jax.nn.relu)(x)[1])(0.), jax.grad(lambda x: checked(jax.nn.logsumexp, every)(x)[1])(v)]
""",
    "errors thrown again": """
def inner(x): err, out = jax.jit(checked(positive))(x); checkify.check_error(err); return out
def batched(x): err, out = jax.vmap(checked(positive))(x); checkify.check_error(err); return out
def kept(x): err, out = checked(positive, user)(x); return out
result = [kind(lambda: inner(jnp.float32(-1))), kind(lambda: inner(1.)), told(inner, -1., errors=user), told(inner, 1.),
    told(kept, -1.), told(kept, 1.), told(batched, v - 1, errors=user), kind(lambda: batched(v)), kind(lambda: jax.jit(inner)(1.)),
    told(lambda x: (positive(x), inner(x))[1], -1., errors=user), told(lambda x: lax.scan(lambda c, x: (c, inner(x)), 0, x), v),
    checkify.init_error.get(), len(jax.tree.leaves(checkify.init_error))]
""",
    "devices": """
mesh = mesh_of((4,), ('x',))
def f(x): return jax.shard_map(lambda b: jnp.log(b) / b, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(x)
s = jax.device_put(v, NamedSharding(mesh, P('x')))
def said(f, *args, errors=every): return jax.jit(checked(f, errors))(*args)[0].get()
result = [said(f, s), said(f, s + 1), said(f, s - 1, errors=nan), said(lambda x: positive(x.sum() - 9), s),
    checked(f, every)(s)[0].get(), said(lambda x: jnp.where(x > 0, 1 / x, x), s), said(jax.jit(f), s), said(jax.jit(jax.jit(f)), s),
    checked(jax.jit(f), div)(s)[0].get(), said(lambda x: 1 / x + jax.jit(f)(x), s, errors=div)]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_checks_say(name: str) -> None:
    """Messages, results and the classes of errors are JAX's."""
    compare(SETUP + PROGRAMS[name])
