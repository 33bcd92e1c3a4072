"""What the functions that transform functions refuse, and the names and documents that their results wear."""

from __future__ import annotations

import copy
import functools
import types
from typing import Any, cast

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import float0, lax
from shardwise.base.errors import LeakedTracerError


def takes(a, b, c): ...


def positional(a, /, b, *args, **kwargs): ...


def generator(x):
    yield x


class Incomparable:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise NotImplementedError


class Unprintable:
    def __call__(self) -> None: ...

    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: jax.jit(cast(Any, 3)), TypeError, "Expected a callable value"),
        (lambda: jax.jit(staticmethod(takes)), TypeError, "staticmethod arguments are not supported"),
        (lambda: jax.jit(generator), TypeError, "got a generator function"),
        (lambda: jax.jit(positional, static_argnames="a"), ValueError, "positional-only"),
        (lambda: jax.jit(positional, donate_argnames="args"), ValueError, "positional-only"),
        (lambda: jax.jit(takes, compiler_options={"flag": 1}), jax.errors.JaxRuntimeError, "No such compile option"),
        (lambda: jax.jit(lambda x: x)(np.ma.masked_array(np.arange(2))), ValueError, "masked arrays are not supported"),
        (lambda: jax.vmap(lambda x: x, in_axes=False), TypeError, "must be an int"),
        (lambda: jax.vmap(lambda x: x, out_axes=(jnp.ones(2),)), TypeError, "out_axes must be an int"),
        (lambda: jax.vmap(lambda x: x)({}), ValueError, "at least one argument containing an array"),
        (lambda: jax.vmap(lambda x: x, axis_name="n", out_axes=None)(jnp.ones(2)), ValueError, "axis_name='n'"),
        (lambda: jax.grad(takes, argnums=())(1.0, 1.0, 1.0), ValueError, "names no argument"),
        (lambda: jax.grad(takes, argnums=(0, -3))(1.0, 1.0, 1.0), TypeError, "twice"),
        (lambda: jax.grad(takes, argnums=3)(1.0, 1.0, 1.0), TypeError, "at least 4 positional arguments"),
        (lambda: jax.jacrev(takes, argnums=-4)(1.0, 1.0, 1.0), ValueError, "Positional argument indices"),
        (lambda: jax.jacfwd(lambda x: x, has_aux=True)(1.0), TypeError, "two-element tuple"),
        (lambda: jax.jvp(jnp.sin, (1.0,), [1.0]), TypeError, "same tree structure"),
        (lambda: jax.linearize(jnp.sum, jnp.arange(3))[1](jnp.ones(3)), ValueError, "float0 only"),
        (lambda: np.zeros((), float0) + jnp.zeros(()), TypeError, "float0s do not support any operations"),
        (lambda: jax.linear_transpose(lambda x: 2.0 * x, 1), TypeError, "all floating or all integer"),
        (lambda: jax.linear_transpose(lambda x: [x, x], 1.0)(1.0), TypeError, "cotangent tree does not match"),
        (lambda: jax.linear_transpose(lambda x: x, 1.0)(1j), TypeError, "cotangent type does not match"),
        (lambda: jax.linear_transpose(lambda x: x * x, 1.0)(1.0), NotImplementedError, "function is not linear.*mul"),
        (lambda: jax.linear_transpose(lambda x: x / x, 1.0)(1.0), NotImplementedError, "function is not linear.*div"),
        (lambda: jax.linear_transpose(jax.nn.relu, 1.0)(1.0), NotImplementedError, "not linear|no transpose rule"),
        (lambda: jax.custom_jvp(takes, nondiff_argnums=(1.5,)), TypeError, "takes ints.*got 1.5"),
    ],
)
def test_refused(make, kind, text):
    with pytest.raises(kind, match=text):
        make()


def test_static_arguments_must_compare():
    f = jax.jit(lambda x, y: x, static_argnums=1)
    with pytest.raises(ValueError, match="comparable using __eq__"):
        for _ in range(2):
            f(1, Incomparable())


def test_conversions_of_tracers_look_at_their_shapes_first():
    several, number = jnp.arange(3), jnp.float32(1)
    for convert, x, kind, text in (
        (bool, several, ValueError, "more than one element is ambiguous"),
        (float, several, TypeError, "Only scalar arrays"),
        (range, several, TypeError, "Only integer scalar arrays"),
        (hex, number, TypeError, "Only integer scalar arrays"),
    ):
        for call in (convert, jax.jit(lambda x: (convert(x), x)[1])):  # noqa: B023
            with pytest.raises(kind, match=text) as caught:
                call(x)
            assert not isinstance(caught.value, jax.errors.ConcretizationTypeError)


def test_tracers_copy_and_derivatives_see_values():
    assert jax.jit(copy.deepcopy)(1) == 1 == jax.jit(copy.copy)(1)
    assert jax.grad(lambda x: x**2 if x.astype(bool).item() else x)(2.0) == 4


def test_names_and_documents():
    def loss(x: int) -> int:
        """Far off."""
        return x

    cast(Any, loss).weight = 4
    jitted = jax.jit(loss)
    assert cast(Any, jitted).weight == 4 and jitted.__annotations__ == loss.__annotations__
    assert jax.grad(loss).__doc__ == (
        "Gradient of loss with respect to positional argument(s) 0.\n\nOriginal documentation:\n\nFar off."
    )
    assert jax.vmap(lambda x: x).__doc__ == "Vectorized version of <lambda>."
    assert jax.make_jaxpr(loss).__name__ == "make_jaxpr(loss)" and jax.make_jaxpr(loss).__module__ == "jax"
    assert repr(jax.jit(Unprintable())) == "<PjitFunction>"
    numbers: list[Any] = [1.0, 2.0, 1]
    for x in numbers:
        jitted(x)
    assert jitted._cache_size() == 2
    jitted.clear_cache()
    assert jitted._cache_size() == 0


def test_what_vmap_does_not_map_may_be_anything():
    np.testing.assert_array_equal(jax.vmap(lambda f, x: f(x), (None, 0))(lambda x: x + 1, jnp.arange(3)), [1, 2, 3])


def test_integers_have_numpy_tangents_outside_of_jit():
    f = jax.jit(jax.grad(lambda x, i: x[i], argnums=(0, 1), allow_int=True))
    assert type(f(jnp.ones(2), 1)[1]) is np.ndarray


def test_transposed_functions_pass_through_jit():
    transpose = functools.partial(jax.jit, static_argnums=0)(jax.linear_transpose)
    transposed = transpose(lambda x: 2.0 * x, 1.0)
    assert jax.jit(lambda f, x: f(x))(transposed, 3.0) == (6.0,)
    duck = types.SimpleNamespace(shape=(3,), dtype=np.dtype(np.float32))
    np.testing.assert_array_equal(jax.linear_transpose(lambda x: 2 * x, duck)(jnp.arange(3.0))[0], [0, 2, 4])


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.jacfwd, lambda f: lambda x: jax.vjp(f, x)])
def test_leaks_of_every_trace_are_found(transform):
    kept = []
    with jax.checking_leaks(), pytest.raises(LeakedTracerError):
        transform(lambda x: (kept.append(x), x)[1])(jnp.arange(3.0))


def test_collectives_print_under_their_names():
    text = str(jax.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 4)])(1.0))
    assert "b:f32[] = psum[axes=('i',) axis_index_groups=None] a" in text
    closed = jax.make_jaxpr(lambda x: lax.all_gather(x, "i"), axis_env=[("i", 4)])(jnp.ones(2))
    assert "all_gather_dimension=0" in str(closed) and "axis_size=4" in str(closed)
    assert closed.eqns[0].primitive.name == "all_gather"


def test_device_get_gives_numpy_but_for_keys():
    got = jax.device_get([np.float32(2), jax.random.key(0), 2])
    assert type(got[0]) is np.ndarray and isinstance(got[1], jax.Array) and got[2] == 2


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: lax.custom_linear_solve(lambda x: [x], jnp.ones(2), lambda mv, b: b), TypeError),
        (lambda: lax.custom_linear_solve(lambda x: x[:1], jnp.ones(2), lambda mv, b: b), ValueError),
        (lambda: lax.custom_root(lambda x: (x, x), 0.0, lambda f, x: x, lambda f, x: x), TypeError),
    ],
)
def test_solvers_look_at_what_their_functions_give(call, kind):
    with pytest.raises(kind, match="output"):
        call()


def test_bodies_of_scans_may_return_lists():
    assert lax.scan(lambda c, x: [c + x, x], 0, jnp.arange(3))[0] == 3


def test_what_is_traced_stays_traced_within_compile_time_eval():
    @jax.jit
    def f(x):
        with jax.ensure_compile_time_eval():
            assert int(jnp.add(1, 1)) == 2
            y = x + 1
        return y * 2

    assert f(3) == 8 and jax.vmap(f)(jnp.arange(2)).tolist() == [2, 4]


def test_types_may_stand_for_results_of_eval_shape():
    struct = jax.ShapeDtypeStruct((2,), jnp.float32)
    assert jax.eval_shape(lambda: (struct, 1.0))[0] == struct
    with pytest.raises(TypeError, match="not a valid JAX type"):
        jax.jit(lambda: struct)()


def test_types_may_stand_for_arguments_that_nobody_uses():
    struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    unused, used = jax.jit(lambda a, b: b * a.shape[0]), jax.jit(lambda a, b: a * b)
    for f in (
        unused,
        lambda a, b: jax.jit(lambda b: unused(a, b))(b),
        lambda a, b: jax.grad(lambda b: unused(a, b) ** 2 / 6)(b),
    ):
        assert f(struct, 1.0) == 3.0
    for f in (used, lambda a, b: jax.jit(lambda b: used(a, b))(b), jax.jit(lambda a, b: a)):
        with pytest.raises(TypeError, match="not a valid JAX type"):
            f(struct, 1.0)
    assert jax.eval_shape(lambda: used(struct, 1.0)).shape == (3,)
