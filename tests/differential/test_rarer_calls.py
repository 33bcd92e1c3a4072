"""Calls that few programs make, where values, types or errors once differed from JAX's: a line each."""

from __future__ import annotations

import pytest

from tests.differential.oracle import compare

_SMALL = "x = jnp.array([-2, -1, 1, 3]).astype('{0}'); y = jnp.array([1, 3, 2, 1]).astype('{0}'); bits = lambda a: a.astype('int32')"
_UNARY = "neg sign bitwise_not square clz"
_BINARY = "add sub mul div rem max min shift_left bitwise_xor"

_RULE = """
@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def f(x, y): return x * y
@f.defjvp
def f_jvp(x, primals, tangents): return f(x, primals[0]), 5 * tangents[0] * x
x, y = jnp.array([2., 3.]), jnp.array([3., 4.])
"""
_BRANCHES = """
safe = lambda x, e=1e-3: jax.lax.cond(x < e, lambda x: 0 * x + e, jnp.sqrt, x)
several = lambda x: jax.lax.switch((x > 0).astype('int32') + (x > 1), [jnp.zeros_like, jnp.log, jnp.sqrt], x)
x = jnp.array([0., 0.5, 4.])
"""

_BODIES = """
mesh = mesh_of((4, 2), ('x', 'y'))
def outcome(call, check, out=P(('x', 'y'))):
    f = jax.shard_map(lambda a: eval(call), mesh=mesh, in_specs=P('x'), out_specs=out, check_vma=check)
    try:
        return str(jax.eval_shape(lambda a: (f(a), jax.grad(lambda a: f(a).sum())(a)), jax.ShapeDtypeStruct((32,), 'float32')))
    except (TypeError, ValueError) as error:
        return type(error).__name__
of = lambda calls: [outcome(c, check) for c in calls for check in (True, False)]
"""
_EXPLICIT = """
def put(shape, *spec): return jax.reshard(jnp.zeros(shape), P(*spec))
def outcome(f):
    try: return str(jax.eval_shape(f))
    except (TypeError, ValueError) as error: return type(error).__name__
rule = jax.custom_vjp(lambda a: a * 2)
rule.defvjp(lambda a: (a * 2, None), lambda r, ct: (put((8, 8)),))
"""

PROGRAMS = {
    "collectives over axes of which one varies": _BODIES + (
        "xy = ('x', 'y')\n"
        "result = of(['lax.ppermute(a, xy, [(0, 7), (3, 1)])', 'lax.all_gather(a, xy)', 'lax.psum(a, xy)', 'lax.psum_scatter(a, xy)'])\n"
        "result += of(['lax.ppermute(a, xy, [(-8, -1), (-1, 0)])'])"
    ),
    "casts of what is not typed": _BODIES + (
        "result = of([f'lax.pcast(a, {x!r}, to={to!r})' for x in ('y', ('x', 'y'), ()) for to in ('varying', 'unreduced', 'up')])\n"
        "result += [outcome(f'lax.pcast(a, {x!r}, to=\"reduced\")', False) for x in 'xy']\n"
        "result += [outcome(f'lax.pcast(a, {x!r}, to={to!r})', True) for x, to in (('y', 'reduced'), ({'x'}, 'varying'))]"
    ),
    "promotion of bools with types of 64 bits": (
        "def told(name, *xs):\n"
        "    try: return name, str(jax.eval_shape(getattr(jnp, name), *xs))\n"
        "    except (TypeError, ValueError) as error: return name, type(error).__name__\n"
        "names = 'floor_divide remainder fmod divmod power left_shift right_shift'\n"
        "single = 'prod cumsum ptp mean average var nanmean nanstd median angle bitwise_count exp'\n"
        "with jax.enable_x64(True):\n"
        "    b, i, u = (jax.ShapeDtypeStruct((3,), t) for t in ('bool', 'int8', 'uint64'))\n"
        "    result = [told(n, *xs) for n in names.split() for xs in ((b, b), (b, i))]\n"
        "    result += [told(n, x) for n in single.split() for x in (b, i, u)]\n"
        "    result += [told('cov', jax.ShapeDtypeStruct((0, 2), t)) for t in ('float32', 'float64')]"
    ),
    "reads of nothing": (
        "key, none, i = jax.random.key(4), jnp.zeros((0, 4)), jnp.zeros((2, 4), 'int32')\n"
        "far = lambda x: jnp.take_along_axis(x, i, axis=0)\n"
        "split = jax.device_put(none, NamedSharding(mesh_of((2, 2), ('x', 'y')), P('x', 'y')))\n"
        "result = [far(none).shape, jax.jit(far)(split).shape, jax.grad(lambda x: far(x).sum())(none)]\n"
        "result += [jax.random.permutation(key, none), jax.random.permutation(key, none.T, axis=1)]\n"
        "q = jnp.zeros((1, 2, 2, 0)); result += [jax.nn.dot_product_attention(q, q, q)]"
    ),
    "collectives over no axes": _BODIES + "result = of(['lax.all_gather(a, ())', 'lax.psum_scatter(a, ())', 'lax.psum(a, ())'])",
    "programs of bodies that are not typed": (
        "mesh = mesh_of((4, 2), ('x', 'y'))\n"
        "def body(a):\n"
        "    c, _ = jax.lax.scan(lambda c, x: (c + x.sum(), c), 0.0 * a.sum(), a)\n"
        "    g = jax.lax.all_gather(a, 'x', axis_index_groups=[[0, 1], [2, 3]])\n"
        "    return jax.lax.psum(a, 'x'), jax.lax.psum(a, 'x', axis_index_groups=[[0, 1], [2, 3]]), c[None] + g.sum()\n"
        "f = jax.shard_map(body, mesh=mesh, in_specs=P('x'), out_specs=(P(), P('x'), P('x')), check_vma=False)\n"
        "result = str(jax.make_jaxpr(f)(jnp.arange(8.0))).split('mesh=')[0]"
    ),
    "out_specs looked at first": _BODIES + "result = outcome('1 / 0', True, P('z'))",
    "tangents laid out otherwise": _EXPLICIT + (
        "x, y = lambda: put((8, 8), 'x'), lambda: put((8, 8), None, 'y')\n"
        "with jax.set_mesh(mesh_of((4, 2), ('x', 'y'), 'Explicit')):\n"
        "    result = [outcome(f) for f in (\n"
        "        lambda: jax.linearize(lambda a: a.sum(0), x())[1](y()), lambda: jax.vjp(jnp.sin, x())[1](y()),\n"
        "        lambda: jax.linear_transpose(lambda a: a * 2, x())(y()), lambda: jax.grad(lambda a: rule(a).sum())(x()),\n"
        "        lambda: jax.jvp(jnp.sin, (x(),), (y(),)), lambda: jax.linearize(jnp.sin, x())[1](x()))]"
    ),
    "batch dims laid out otherwise": _EXPLICIT + (
        "pair = lambda *of: [put((8, 8, 8), *spec) for spec in of]\n"
        "with jax.set_mesh(mesh_of((4, 2), ('x', 'y'), 'Explicit')):\n"
        "    result = [outcome(lambda: jnp.einsum(s, *pair(*of)))\n"
        "              for s in ('bij,bjk->bik', 'bij,bjk->bki', 'bij,bkj->ibk', 'bij,bij->bi')\n"
        "              for of in ((('x',), ()), ((), ('x',)))]"
    ),
    "explicit_axes of what is explicit": _EXPLICIT + (
        "twice = lambda axes, *spec: jax.sharding.explicit_axes(lambda a: a * 2, axes=axes, in_sharding=P(*spec))(put((8, 8), 'y'))\n"
        "with jax.set_mesh(mesh_of((4, 2), ('x', 'y'), 'Explicit')):\n"
        "    result = [outcome(lambda: twice(*a)) for a in ((None, 'x'), ('x', 'x', 'y'), ('y', ('x', 'y')))]"
    ),
    "structs on meshes with automatic axes": _EXPLICIT + (
        "mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('x', 'y'), axis_types=(AxisType.Explicit, AxisType.Auto))\n"
        "with jax.set_mesh(mesh):\n"
        "    result = [outcome(lambda: put((8, 8), 'x')), str(jax.jit(lambda: put((8, 8), 'x')).trace().out_info)]"
    ),
    **{
        f"{dtype}: bits": _SMALL.format(dtype)
        + f"\none = lambda x: [bits(getattr(jax.lax, n)(x)) for n in {_UNARY.split()!r}]"
        + f"\ntwo = lambda x, y: [bits(getattr(jax.lax, n)(x, y)) for n in {_BINARY.split()!r}]"
        + "\nresult = jax.jit(lambda x, y: [one(x), two(x, y), one(jnp.tile(x, 5000))[:4]])(x, y)"
        for dtype in ("int4", "uint2")
    },
    **{
        f"{dtype}: along dims": _SMALL.format(dtype)
        + "\nm = jnp.stack([x, y])"
        + "\nresult = jax.jit(lambda m: [bits(v) for v in (m.max(0), m.min(1), jax.lax.cummax(m, 1), jnp.sort(m))])(m)"
        for dtype in ("int4", "uint4")
    },
    "bits of other widths": (
        "cast = lambda x, t: jax.lax.bitcast_convert_type(x, t)\n"
        "x = jnp.array([1.5, -2.25]); n = jnp.array([-2, 77], 'int8'); h = jnp.array([[1, -2], [7, -8]]).astype('int4')\n"
        "result = [cast(x, 'int4').astype('int32'), cast(n, 'int4').astype('int32'), cast(n, 'uint4').astype('int32'), cast(h, 'int8'),\n"
        "          cast(cast(x, 'uint4'), 'float32'), jax.jit(lambda h: cast(h, 'uint8'))(h)]"
    ),
    "complex log1p near one": "z = jnp.array([1e-5, 1e-3 + 1e-4j, -1e-5j, 3e-7 + 1j, -0.2 + 0.6j], 'complex64')\nresult = jax.lax.log1p(z)",
    "large ints cast": "result = [jax.lax.convert_element_type(2**33 + 7, t) for t in ('int32', 'uint8', 'float32')]",
    "slopes of branches": _BRANCHES
    + "result = jax.jit(lambda x: [jax.grad(lambda x: jax.vmap(f)(x).sum())(x) for f in (safe, several)])(x)",
    "slopes of eager branches": _BRANCHES + "result = jax.grad(lambda x: jax.vmap(safe)(x).sum())(x)",
    "bounds under grad": "result = jax.grad(lambda x: jax.lax.fori_loop(x, x + 2., lambda i, c: c * x, x))(3.)",
    "sinc's slopes": "result = jax.jit(jax.grad(jax.grad(jnp.sinc)))(jnp.array(0.))",
    "types of ravel_multi_index": (
        "at = lambda t: jnp.ravel_multi_index((jnp.array([0, 1], t),) * 2, (2, 3), mode='clip')\n"
        "result = [at(t) for t in ('uint8', 'int16', 'uint32')]"
    ),
    "scalars between bounds with dims": (
        "draw = lambda low, high: jax.random.uniform(jax.random.key(0), (), 'float32', low, high).shape\n"
        "result = [draw(jnp.zeros(1), 2.), draw(0., jnp.ones(1)), draw(jnp.zeros((1, 1)), 1.)]"
    ),
    "grids without dims": "result = [jnp.mgrid[()], jnp.ogrid[()]]",
    "far diagonals": "result = [jnp.eye(3, 4, k) for k in (2**40, -2**40, 2**31 - 1)]",
    "keys are close": "k = jax.random.split(jax.random.key(0), 2)\nresult = [jnp.isclose(k, k[0]), jnp.allclose(k, k)]",
    "complex in lists": "result = [jax.jit(lambda x: jnp.iscomplexobj([x]))(1j), jnp.isrealobj([jnp.ones(1)])]",
    "rules with mapped arguments": _RULE
    + "result = [jax.jvp(lambda y: jax.vmap(f)(x, y), (y,), (y,)), jax.grad(lambda y: jax.vmap(f, (0, None))(x, y).sum())(3.),\n"
    + "          jax.jit(jax.grad(lambda y: jax.vmap(f)(x, y).sum()))(y), jax.jvp(lambda y: jax.vmap(f)(y, y), (y,), (y,))]",
    "rules of partial functions": (
        "g = jax.custom_jvp(functools.partial(lambda x, y, a: x + y * a, a=2.))\n"
        "g.defjvp(lambda p, t: (g(*p), t[0] + 3 * t[1]))\nresult = jax.grad(lambda v: g(*v))((1., 2.))"
    ),
    "parts over two maps": (
        "x = jnp.arange(2 * 3 * 6 * 12).reshape(2, 3, 6, 12)\n"
        "two = lambda f: jax.vmap(jax.vmap(f, axis_name='j'), axis_name='i')(x)\n"
        "result = [two(lambda x: jax.lax.all_to_all(x, a, s, c, tiled=t)) for a, s, c, t in\n"
        "          [(('i', 'j'), 0, 1, False), (('j', 'i'), 0, 0, False), (('i', 'j'), 1, 0, True), (('j', 'i'), 0, 1, True)]]"
    ),
    "a loaded program of one device": (
        "one = NamedSharding(Mesh(jax.devices()[:1], 'i'), P('i'))\n"
        "f = jax.export.export(jax.jit(lambda x: jax.lax.with_sharding_constraint(x, one) * 2))(jnp.arange(8.))\n"
        "result = f.call(jax.device_put(jnp.arange(8.), NamedSharding(Mesh(jax.devices()[:2], 'j'), P('j'))))"
    ),
    "too many to rank": "result = jax.eval_shape(lambda x: jax.lax.top_k(x, 3), jax.ShapeDtypeStruct((2**31 + 1,), 'bfloat16'))",
    "float0 shown": "result = np.asarray(jnp.zeros(3, jax.dtypes.float0)).shape",
    "checks of narrow floats": (
        "from jax.test_util import check_grads\n"
        "check_grads(lambda x: x * x, (jnp.linspace(0.1, 1, 5, dtype='bfloat16'),), 1, eps=0.1)\n"
        "check_grads(lambda x: jnp.where(x > 0, -jnp.inf, x), (jnp.array([-1., 2.]),), 1, modes=['fwd'])\nresult = 0"
    ),
    "array in array": "result = [1 in jnp.arange(3), 5 in jnp.arange(3), 1.0 in jnp.arange(3)]",
    "array in itself": "result = jnp.arange(2) in jnp.arange(2)",
    "text in array": "result = 'a' in jnp.arange(2)",
    "in a matrix": "result = 1.0 in jnp.ones((2, 2))",
    "a named tuple's operators": (
        "class Pair(typing.NamedTuple):\n    a: int\n    def __rmul__(self, other): return 2 * other\n"
        "    def __add__(self, other): return 1\n"
        "result = [jnp.ones(2) * Pair(1), Pair(1) + jnp.ones(2)]"
    ),
    "a plain tuple": "result = jnp.ones(2) * (1, 2)",
    "quantiles with types of 64 bits": (
        "from jax.scipy import special, stats\n"
        "q, h = jnp.array([0.25, 0.5], 'float32'), jnp.array(0.5, 'float16')\n"
        "of = lambda: [str(x.dtype) for x in (stats.norm.ppf(q), stats.norm.isf(q), stats.norm.ppf(0.5, h, h), \n"
        "    special.owens_t(q, q), special.owens_t(h, 1))]\n"
        "with jax.enable_x64(True):\n    result = of()\nresult += of()"
    ),
    "structs of references": _EXPLICIT + (
        "def f(r, x):\n    r[...] += x\n    return r[0]\n"
        "s, r = jax.ShapeDtypeStruct((3,), 'float32', is_ref=True), jax.new_ref(jnp.zeros(3))\n"
        "lowered = jax.jit(f).lower(s, 1.0)\n"
        "result = [str(s), str(s.update(shape=(4,))), str(jax.eval_shape(f, s, 1.0)), str(jax.make_jaxpr(f)(s, 1.0)),\n"
        "    str(lowered.in_avals), str(lowered.in_tree), lowered.compile()(r, 2.0), r[...]]"
    ),
    "structs of specs": _EXPLICIT + (
        "from jax.experimental.layout import Format, Layout\nmesh = mesh_of((2,), ('x',))\n"
        "s = jax.ShapeDtypeStruct((4, 2), 'float32', sharding=P('x'))\n"
        "with jax.set_mesh(mesh):\n"
        "    result = [str(s.sharding), str(s), str(jax.jit(jnp.sin).lower(s).in_avals)]\n"
        "laid = jax.ShapeDtypeStruct((4, 2), 'float32', sharding=Format(Layout((0, 1)), NamedSharding(mesh, P())))\n"
        "result += [outcome(lambda: s.sharding), outcome(lambda: str(s)), outcome(lambda: s.update(sharding=P(None, None, 'x'))),\n"
        "    outcome(lambda: laid.update(sharding=laid.sharding)), laid.update(sharding=None).shape]"
    ),
    "guarded constants": "with jax.transfer_guard('disallow'):\n    result = jax.jit(lambda: jnp.asarray(np.float32(2)) + np.float32(1))()",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_errors_agree(name: str) -> None:
    compare("import functools, math, typing\nfrom jax import lax\n" + PROGRAMS[name], devices=8)
