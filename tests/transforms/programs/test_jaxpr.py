"""Programs as interpreters see them: JAX's text, JAX's attributes, and new primitives with rules of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import core, lax
from shardwise.base.errors import LeakedTracerError
from shardwise.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var, jaxpr_as_fun
from shardwise.interpreters import ad, batching, mlir, xla
from shardwise.transforms.programs.jaxpr_layout import Break, group, layout, nest

LATEST = "shardwise_dialect"

# (function, arguments, text in today's dialect): as JAX 0.10 prints them.
TEXTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "one line": (jnp.sin, (np.ones(3, np.float32),), "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }"),
    "no equations": (lambda x: (x, x), (np.ones(3, np.float32),), "{ lambda ; a:f32[3]. let  in (a, a) }"),
    "constants": (lambda: 1.0, (), "{ lambda ; . let  in (1.0:f32[],) }"),
    "params": (
        lambda x, y: jnp.sin(x) @ y + jnp.sum(x) * 2,
        (np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)),
        """{ lambda ; a:f32[3,4] b:f32[4,5]. let
    c:f32[3,4] = sin a
    d:f32[3,5] = dot_general[
      dimension_numbers=(([1], [0]), ([], []))
      preferred_element_type=float32
    ] c b
    e:f32[] = reduce_sum[axes=(0, 1) out_sharding=None] a
    f:f32[] = mul e 2.0:f32[]
    g:f32[3,5] = add d f
  in (g,) }""",
    ),
    "branches": (
        lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x),
        (1.0,),
        """{ lambda ; a:f32[]. let
    b:bool[] = gt a 0.0:f32[]
    c:i32[] = convert_element_type[new_dtype=int32 weak_type=False] b
    d:f32[] = cond[
      branches=(
        { lambda ; e:f32[]. let f:f32[] = cos e in (f,) }
        { lambda ; g:f32[]. let h:f32[] = sin g in (h,) }
      )
    ] c a
  in (d,) }""",
    ),
    "loops": (
        lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2, x),
        (1.0,),
        """{ lambda ; a:f32[]. let
    b:f32[] = while[
      body_jaxpr={ lambda ; c:f32[]. let d:f32[] = mul c 2.0:f32[] in (d,) }
      body_nconsts=0
      cond_jaxpr={ lambda ; e:f32[]. let f:bool[] = lt e 10.0:f32[] in (f,) }
      cond_nconsts=0
    ] a
  in (b,) }""",
    ),
    "calls": (
        lambda x: sw.jit(lambda y: jnp.cos(y) * y)(x) + 1,
        (np.ones(3, np.float32),),
        """{ lambda ; a:f32[3]. let
    b:f32[3] = jit[
      name=<lambda>
      jaxpr={ lambda ; a:f32[3]. let
          c:f32[3] = cos a
          b:f32[3] = mul c a
        in (b,) }
    ] a
    d:f32[3] = add b 1.0:f32[]
  in (d,) }""",
    ),
}

Y = np.arange(12, dtype=np.float32).reshape(3, 4)
S = np.eye(3, dtype=np.float32)

# (function of a library, arguments): programs whose text is JAX's, to the letter.
SAME = {
    "keys": (lambda lib: lambda: lib.random.key(0), ()),
    "qr": (lambda lib: lib.numpy.linalg.qr, (Y,)),
    "svd": (lambda lib: lib.numpy.linalg.svd, (Y,)),
    "eigh": (lambda lib: lib.numpy.linalg.eigh, (S,)),
    "sum of cotangents": (lambda lib: lib.value_and_grad(lambda x: (x * x).sum()), (Y,)),
    "sum of cotangents, mapped": (lambda lib: lib.vmap(lib.grad(lambda x: lib.numpy.sin(x) * x)), (Y[0],)),
    "nansum": (lambda lib: lib.numpy.nansum, (Y,)),
    "nanprod": (lambda lib: lib.numpy.nanprod, (Y,)),
    "tril": (lambda lib: lib.numpy.tril, (Y,)),
    "triu": (lambda lib: lambda x: lib.numpy.triu(x, 1), (Y,)),
    "eye": (lambda lib: lambda x: x @ lib.numpy.eye(4), (Y,)),
    "any": (lambda lib: lib.numpy.any, (Y,)),
    "all": (lambda lib: lib.numpy.all, (Y,)),
    "softmax": (lambda lib: lib.nn.softmax, (Y,)),
    "log_softmax": (lambda lib: lib.nn.log_softmax, (Y,)),
    "one_hot": (lambda lib: lambda i: lib.nn.one_hot(i, 4), (np.arange(3, dtype=np.int32),)),
    "outer": (lambda lib: lib.numpy.outer, (Y, Y)),
    "hstack": (lambda lib: lambda x: lib.numpy.hstack([x, x]), (Y,)),
    "vstack": (lambda lib: lambda x: lib.numpy.vstack([x, x]), (Y,)),
}


@pytest.mark.parametrize("name", SAME)
def test_texts_are_those_of_the_oracle(name, latest):
    jax = pytest.importorskip("jax")
    function, arguments = SAME[name]
    assert str(sw.make_jaxpr(function(sw))(*arguments)) == str(jax.make_jaxpr(function(jax))(*arguments))


def test_params_of_convolutions(latest):
    """JAX prints NumPy's integers in the padding; the other params are equal."""
    text = str(sw.make_jaxpr(lambda x: lax.conv_general_dilated(x, x, (1,), "VALID"))(np.ones((1, 1, 3), np.float32)))
    for line in ("out_sharding=None", "precision=None", "preferred_element_type=None"):
        assert f"      {line}\n" in text


def twice(jit):
    """A function that calls another twice."""

    def scaled(x):
        return x * 0.1 + 1

    inner = jit(scaled)
    return lambda x: inner(inner(x))


def called(jit, sin):
    """A function that calls a long one, once."""

    def long(x):
        for _ in range(11):
            x = sin(x)
        return x

    return lambda x: jit(long)(x)


LONG = "".join(f"    {b}:f32[] = sin {a}\n" for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True))
TEXTS.update(
    {
        "shared programs": (
            twice(sw.jit),
            (2.0,),
            """let scaled = { lambda ; a:f32[]. let
    b:f32[] = mul a 0.1:f32[]
    c:f32[] = add b 1.0:f32[]
  in (c,) } in
{ lambda ; d:f32[]. let
    e:f32[] = jit[name=scaled jaxpr=scaled] d
    f:f32[] = jit[name=scaled jaxpr=scaled] e
  in (f,) }""",
        ),
        "long programs": (
            called(sw.jit, jnp.sin),
            (2.0,),
            f"""let long = {{ lambda ; a:f32[]. let
{LONG}  in (l,) }} in
{{ lambda ; m:f32[]. let n:f32[] = jit[name=long jaxpr=long] m in (n,) }}""",
        ),
        "captured values of loops": (
            lambda x, y: lax.fori_loop(0, y, lambda i, c: c + x, x),
            (np.ones(3, np.float32), 5),
            """{ lambda ; a:f32[3] b:i32[]. let
    _:i32[] _:i32[] c:f32[3] = while[
      body_jaxpr={ lambda ; d:f32[3] e:i32[] f:i32[] g:f32[3]. let
          h:i32[] = add e 1:i32[]
          i:f32[3] = add g d
        in (h, f, i) }
      body_nconsts=1
      cond_jaxpr={ lambda ; j:i32[] k:i32[] l:f32[3]. let
          m:bool[] = lt j k
        in (m,) }
      cond_nconsts=0
    ] a 0:i32[] b a
  in (c,) }""",
        ),
        "powers and extrema": (
            lambda x: (x**2).max(),
            (np.ones(3, np.float32),),
            """{ lambda ; a:f32[3]. let
    b:f32[3] = integer_pow[y=2] a
    c:f32[] = reduce_max[axes=(0,)] b
  in (c,) }""",
        ),
    }
)


@pytest.fixture
def latest():
    before = sw.config.shardwise_dialect
    sw.config.update(LATEST, "latest")
    yield
    sw.config.update(LATEST, before)


@pytest.mark.parametrize("name", TEXTS)
def test_text(latest, name: str) -> None:
    fun, args, text = TEXTS[name]
    assert str(sw.make_jaxpr(fun)(*args)) == text


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_that_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    if jax.__version_info__ < (0, 10):
        pytest.skip("the text is that of 0.10")
    _, args, text = TEXTS[name]
    programs = {
        "one line": jax.numpy.sin,
        "no equations": lambda x: (x, x),
        "constants": lambda: 1.0,
        "params": lambda x, y: jax.numpy.sin(x) @ y + jax.numpy.sum(x) * 2,
        "branches": lambda x: jax.lax.cond(x > 0, jax.numpy.sin, jax.numpy.cos, x),
        "shared programs": twice(jax.jit),
        "long programs": called(jax.jit, jax.numpy.sin),
        "captured values of loops": lambda x, y: jax.lax.fori_loop(0, y, lambda i, c: c + x, x),
        "powers and extrema": lambda x: (x**2).max(),
        "loops": lambda x: jax.lax.while_loop(lambda c: c < 10, lambda c: c * 2, x),
        "calls": lambda x: jax.jit(lambda y: jax.numpy.cos(y) * y)(x) + 1,
    }
    assert str(jax.make_jaxpr(programs[name])(*args)) == text


def test_seed_text() -> None:
    text = str(sw.make_jaxpr(lambda x: sw.jit(jnp.sin)(x) * 2)(1.0))
    assert text == (
        "{ lambda ; a:f32[]. let\n"
        "    b:f32[] = pjit[\n"
        "      name=sin\n"
        "      jaxpr={ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }\n"
        "    ] a\n"
        "    c:f32[] = mul b 2.0\n"
        "  in (c,) }"
    )


def test_layout_breaks_the_outer_group_first() -> None:
    doc = group("f(", nest(2, Break(""), group("g(", nest(2, Break(""), "x" * 5), Break(""), ")")), Break(""), ")")
    assert layout(doc, 20) == "f(g(xxxxx))"
    assert layout(doc, 10) == "f(\n  g(xxxxx)\n)"
    assert layout(doc, 8) == "f(\n  g(\n    xxxxx\n  )\n)"


def test_attributes() -> None:
    closed = sw.make_jaxpr(lambda x, y: jnp.sin(x) * y + 1.0)(np.ones(3, np.float32), 2.0)
    assert isinstance(closed, ClosedJaxpr) and isinstance(closed.jaxpr, Jaxpr) and closed.consts == []
    assert [t.str_short() for t in closed.in_avals] == ["f32[3]", "f32[]"]
    assert [e.primitive.name for e in closed.eqns] == ["sin", "convert_element_type", "mul", "add"]
    sine, *_, add = closed.eqns
    assert isinstance(sine, JaxprEqn) and sine.primitive is lax.sin_p and isinstance(sine.primitive, Primitive)
    assert sine.invars == closed.jaxpr.invars[:1] and isinstance(sine.outvars[0], Var) and sine.params == {}
    assert isinstance(add.invars[1], Literal) and add.invars[1].val == 1.0
    assert str(sine) == "a:f32[3] = sin b"
    expected = np.sin(np.ones(3, np.float32)) * 2 + 1
    np.testing.assert_allclose(
        core.eval_jaxpr(closed.jaxpr, closed.consts, np.ones(3, np.float32), 2.0)[0], expected, rtol=1e-6
    )
    np.testing.assert_allclose(sw.jit(jaxpr_as_fun(closed))(np.ones(3, np.float32), 2.0)[0], expected, rtol=1e-6)


def test_an_interpreter_inverts_a_function() -> None:
    inverse = {lax.exp_p: jnp.log, lax.tanh_p: jnp.arctanh}

    def inverted(fun):
        def run(x):
            jaxpr = sw.make_jaxpr(fun)(x).jaxpr
            env = dict(zip(jaxpr.outvars, [x], strict=True))
            for eqn in reversed(jaxpr.eqns):
                env[eqn.invars[0]] = inverse[eqn.primitive](env[eqn.outvars[0]])
            return env[jaxpr.invars[0]]

        return run

    f = lambda x: jnp.exp(jnp.tanh(x))  # noqa: E731
    np.testing.assert_allclose(np.asarray(inverted(f)(f(0.5))), 0.5, rtol=2e-6)
    np.testing.assert_allclose(sw.jit(sw.vmap(inverted(f)))(f(np.array([0.5, 0.1], np.float32))), [0.5, 0.1], rtol=5e-6)
    np.testing.assert_allclose(sw.grad(inverted(f))(1.5), sw.grad(lambda y: jnp.arctanh(jnp.log(y)))(1.5), rtol=1e-6)


def test_programs_within_and_rebuilt_programs() -> None:
    inner = sw.jit(lambda x: jnp.sin(x) * 2)
    closed = sw.make_jaxpr(lambda x: lax.cond(x > 0, inner, jnp.cos, x))(1.0)
    found: list[str] = []

    def walk(jaxpr: Jaxpr) -> None:
        for eqn in jaxpr.eqns:
            found.append(eqn.primitive.name)
            for value in eqn.params.values():
                for item in value if isinstance(value, tuple) else (value,):
                    if isinstance(item, ClosedJaxpr):
                        walk(item.jaxpr)

    walk(closed.jaxpr)
    assert {"sin", "mul", "cos", "cond"} <= set(found)
    assert next(j.eqns[0].primitive.name for j in core.subjaxprs(closed.jaxpr)) == "cos"
    call = sw.make_jaxpr(inner)(1.0).eqns
    rebuilt = closed.jaxpr.replace(eqns=[e.replace() for e in closed.jaxpr.eqns])
    np.testing.assert_allclose(core.eval_jaxpr(rebuilt, [], 1.0)[0], 2 * np.sin(1), rtol=1e-6)
    assert call


def _multiply_add() -> Primitive:
    made = Primitive("multiply_add")
    made.def_impl(lambda x, y, z: np.add(np.multiply(x, y), z))
    made.def_abstract_eval(lambda x, y, z: core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(made, mlir.lower_fun(lambda x, y, z: x * y + z, multiple_results=False))

    def jvp(primals, tangents):
        x, y, z = primals
        zero = lambda t: jnp.zeros_like(x) if type(t) is ad.Zero else t  # noqa: E731
        xt, yt, zt = map(zero, tangents)
        return made.bind(x, y, z), made.bind(xt, y, made.bind(x, yt, zt))

    def transpose(ct, x, y, z):
        if not ad.is_undefined_primal(x):
            return None, made.bind(x, ct, 0.0), ct
        return made.bind(ct, y, 0.0), None, ct

    ad.primitive_jvps[made] = jvp
    ad.primitive_transposes[made] = transpose
    batching.primitive_batchers[made] = lambda args, dims: (made.bind(*args), dims[0])
    return made


def test_a_new_primitive() -> None:
    made = _multiply_add()
    f = made.bind
    assert f(2.0, 10.0, 3.0) == 23 and sw.jit(lambda x: f(x, x, 1.0))(3.0) == 10
    out, tangent = sw.jvp(f, (2.0, 10.0, 3.0), (1.0, 1.0, 1.0))
    assert (out, tangent) == (23, 13)
    assert sw.grad(lambda x, y: f(x, y, x), (0, 1))(2.0, 10.0) == (11, 2)
    assert sw.jit(sw.grad(lambda x: f(x, x, x)))(2.0) == 5
    np.testing.assert_array_equal(sw.vmap(f)(np.arange(3.0), np.ones(3), np.ones(3)), [1, 2, 3])
    assert "multiply_add a a a" in str(sw.make_jaxpr(lambda x: f(x, x, x))(1.0))


def test_windows_are_bound_with_the_params_of_jax() -> None:
    x = np.arange(4.0, dtype="float32")

    def both(x: object) -> object:
        return lax.dynamic_update_slice_p.bind(x, lax.dynamic_slice_p.bind(x, 9, slice_sizes=(2,)), 0)

    assert both(x).tolist() == sw.jit(both)(x).tolist() == [2.0, 3.0, 2.0, 3.0]  # type: ignore[attr-defined]


def test_what_a_primitive_lacks_is_named() -> None:
    bare = Primitive("bare")
    with pytest.raises(NotImplementedError, match="Evaluation rule for 'bare' not implemented"):
        bare.bind(1.0)
    with pytest.raises(NotImplementedError, match="Abstract evaluation for 'bare'"):
        sw.jit(bare.bind)(1.0)
    for several, found in ((False, [1.0]), (True, 1.0)):
        bare.multiple_results = several
        bare.def_abstract_eval(lambda x, found=found: found)
        with pytest.raises(ValueError, match=r"bare.abstract_eval\(\) method should return a tuple or a list iff"):
            sw.jit(bare.bind)(1.0)
    bare.multiple_results = False
    bare.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match="MLIR translation rule for primitive 'bare' not found"):
        sw.jit(bare.bind)(1.0)
    mlir.register_lowering(
        bare, lambda ctx, x: [x]
    )  # writes MLIR: traces take the primitive, compiled programs refuse it
    assert "bare" in str(sw.make_jaxpr(bare.bind)(1.0))
    with pytest.raises(NotImplementedError, match="lower_fun"):
        sw.jit(bare.bind)(1.0)
    with pytest.raises(TypeError, match="custom_jvp"):
        ad.primitive_jvps[lax.sin_p] = lambda *_: None
    bare.def_impl(lambda x: np.asarray(x) + 1)  # no lowering: called back
    assert sw.jit(bare.bind)(1.0) == 2
    with pytest.raises(NotImplementedError, match="Differentiation rule for 'bare' not implemented"):
        sw.jvp(bare.bind, (1.0,), (1.0,))
    with pytest.raises(NotImplementedError, match="Batching rule for 'bare' not implemented"):
        sw.vmap(bare.bind)(np.ones(3, np.float32))


def test_a_primitive_whose_implementation_is_its_lowering() -> None:
    double = Primitive("double")
    double.def_impl(functools.partial(xla.apply_primitive, double))
    double.def_abstract_eval(lambda x: core.ShapedArray(x.shape, x.dtype))
    for f in (double.bind, sw.jit(double.bind)):
        with pytest.raises(NotImplementedError, match="lower_fun"):
            f(jnp.ones(2))
    mlir.register_lowering(double, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
    assert (
        double.bind(jnp.ones(())) == sw.jit(double.bind)(jnp.ones(())) == xla.apply_primitive(lax.add_p, 1.0, 1.0) == 2
    )


def test_leaked_arguments_are_found() -> None:
    kept: list[object] = []
    for fun in (lambda x: kept.append(x) or x, lambda x: kept.append(x + 1) or x):
        with sw.checking_leaks(), pytest.raises(LeakedTracerError):
            sw.jit(fun)(1.0)
        kept.clear()
    with sw.checking_leaks():
        assert sw.jit(sw.grad(lambda x: lax.scan(lambda c, y: (c * y, c), x, np.ones(3))[0]))(1.0) == 1


def test_linear_maps_are_trees() -> None:
    f = lambda x, y: jnp.sin(x) * y  # noqa: E731
    _, pull = sw.jit(lambda x: sw.vjp(f, x, 2.0))(1.0)
    np.testing.assert_allclose(sw.jit(lambda p, ct: p(ct))(pull, 1.0), (2 * np.cos(1), np.sin(1)), rtol=1e-6)
    _, push = sw.linearize(f, 1.0, 2.0)
    assert type(push) is sw.tree_util.Partial
    np.testing.assert_allclose(sw.jit(lambda p, t: p(t, 0.0))(push, 1.0), 2 * np.cos(1), rtol=1e-6)
    fwd, bwd = sw.fwd_and_bwd(lambda x, y: (f(x, y), {"aux": y}), argnums=(0, 1), has_aux=True)
    out, residuals, aux = fwd(1.0, 2.0)
    np.testing.assert_allclose(out, 2 * np.sin(1), rtol=1e-6)
    np.testing.assert_allclose(bwd(residuals, 1.0), (2 * np.cos(1), np.sin(1)), rtol=1e-6)
    assert aux == {"aux": 2}


def test_params_that_only_the_text_has_can_be_asked_for():
    """Libraries that walk through programs read them."""
    made = sw.make_jaxpr(lambda x: lax.scan(lambda c, y: (c + y, c), 0.0, x))(jnp.arange(4.0))
    (eqn,) = [e for e in made.eqns if e.primitive.name == "scan"]
    assert eqn.params["unroll"] == 1 and "unroll" in eqn.params and eqn.params["length"] // eqn.params["unroll"] == 4
    assert "unroll" not in list(eqn.params)  # what is bound anew does not take it
    values = sw.core.eval_jaxpr(made.jaxpr, made.consts, jnp.arange(4.0))
    np.testing.assert_array_equal(values[1], [0.0, 0.0, 1.0, 3.0])
