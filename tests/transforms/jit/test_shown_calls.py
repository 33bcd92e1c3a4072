"""Programs that are traced to be shown have JAX's calls and ops; those that are compiled do without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise.base import config

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
INDEX = np.arange(3, dtype=np.int32)


@pytest.fixture(autouse=True)
def latest():
    """Texts are those of JAX 0.10.2."""
    before = config.shardwise_dialect
    config.update("shardwise_dialect", "0.10")
    yield
    config.update("shardwise_dialect", before)


WHERE = """{ lambda ; a:f32[3,4]. let
    b:bool[3,4] = gt a 1.0:f32[]
    c:f32[3,4] = jit[
      name=_where
      jaxpr={ lambda ; b:bool[3,4] a:f32[3,4] d:f32[]. let
          e:f32[] = convert_element_type[new_dtype=float32 weak_type=False] d
          f:f32[3,4] = broadcast_in_dim e
          c:f32[3,4] = select_n b f a
        in (c,) }
    ] b a 0.0:f32[]
  in (c,) }"""
SORT = """{ lambda ; a:f32[3,4]. let
    b:i32[3,4] = jit[
      name=argsort
      jaxpr={ lambda ; a:f32[3,4]. let
          c:i32[3,4] = iota[dimension=1 dtype=int32 shape=(3, 4) sharding=None] 
          d:f32[3,4] b:i32[3,4] = sort[dimension=1 is_stable=True num_keys=1] a c
        in (b,) }
    ] a
  in (b,) }"""
CLIP = """{ lambda ; a:f32[3,4]. let
    b:f32[3,4] = jit[
      name=clip
      jaxpr={ lambda ; a:f32[3,4] c:i32[] d:i32[]. let
          e:f32[] = convert_element_type[new_dtype=float32 weak_type=False] c
          f:f32[3,4] = max e a
          g:f32[] = convert_element_type[new_dtype=float32 weak_type=False] d
          b:f32[3,4] = min g f
        in (b,) }
    ] a 0:i32[] 1:i32[]
  in (b,) }"""
RELU = """{ lambda ; a:f32[3,4]. let
    b:f32[3,4] = custom_jvp_call[
      name=relu
      call_jaxpr={ lambda ; c:f32[3,4]. let
          d:f32[3,4] = jit[
            name=relu
            jaxpr={ lambda ; c:f32[3,4]. let
                d:f32[3,4] = max c 0.0:f32[]
              in (d,) }
          ] c
        in (d,) }
      jvp=jvp
      symbolic_zeros=False
    ] a
  in (b,) }"""
GRADIENT = """{ lambda ; a:f32[3,4]. let
    b:f32[3,4] = sin a
    c:f32[3,4] = cos a
    d:f32[3,4] = integer_pow[y=2] b
    e:f32[3,4] = mul 2.0:f32[] b
    _:f32[] = reduce_sum[axes=(0, 1) out_sharding=None] d
    f:f32[3,4] = broadcast_in_dim 1.0:f32[]
    g:f32[3,4] = mul f e
    h:f32[3,4] = mul g c
  in (h,) }"""
READ = """{ lambda ; a:f32[3,4] b:i32[]. let
    c:i32[] = convert_element_type[new_dtype=int32 weak_type=False] b
    d:bool[] = lt c 0:i32[]
    e:i32[] = add c 3:i32[]
    f:i32[] = select_n d c e
    g:bool[] = lt 0:i32[] 0:i32[]
    h:i32[] = add 0:i32[] 4:i32[]
    i:i32[] = select_n g 0:i32[] h
    j:f32[1,4] = dynamic_slice[slice_sizes=(1, 4)] a f i
    k:f32[4] = squeeze[dimensions=(0,)] j
  in (k,) }"""
WRITE = """{ lambda ; a:f32[3,4]. let
    b:i32[1] = broadcast_in_dim 0:i32[]
    c:f32[4] = broadcast_in_dim 1.0:f32[]
    d:f32[3,4] = scatter[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(0,), inserted_window_dims=(0,), \
scatter_dims_to_operand_dims=(0,), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=True
      mode=GatherScatterMode.FILL_OR_DROP
      unique_indices=True
      update_consts=()
      update_jaxpr=None
    ] a b c
  in (d,) }"""
ADDED = """{ lambda ; a:f32[3,4] b:i32[3]. let
    c:bool[3] = lt b 0:i32[]
    d:i32[3] = add b 3:i32[]
    e:i32[3] = select_n c b d
    f:i32[3,1] = broadcast_in_dim[broadcast_dimensions=(0,)] e
    g:f32[3,4] = broadcast_in_dim 1.0:f32[]
    h:f32[3,4] = scatter-add[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(1,), inserted_window_dims=(0,), \
scatter_dims_to_operand_dims=(0,), operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=False
      mode=GatherScatterMode.FILL_OR_DROP
      unique_indices=False
      update_consts=()
      update_jaxpr={ lambda ; i:f32[] j:f32[]. let k:f32[] = add i j in (k,) }
    ] a f g
  in (h,) }"""
STACK = """{ lambda ; a:f32[3,4]. let
    b:f32[3,4] = mul a 2.0:f32[]
    c:f32[3,2,4] = stack[axis=1] a b
    _:f32[] = reduce_sum[axes=(0, 1, 2) out_sharding=None] c
    d:f32[3,2,4] = broadcast_in_dim 1.0:f32[]
    e:f32[3,4] f:f32[3,4] = unstack[axis=1] d
    g:f32[3,4] = mul f 2.0:f32[]
    h:f32[3,4] = add_any e g
  in (h,) }"""
TILE = """{ lambda ; a:f32[3,4]. let b:f32[6,4] = tile[reps=(2, 1)] a in (b,) }"""
FOLD = """{ lambda ; a:f32[3,4]. let
    b:f32[3,3] = reduce_window[
      base_dilation=(1, 1)
      consts=()
      jaxpr={ lambda ; c:f32[] d:f32[]. let
          e:f32[] = mul c d
          f:f32[] = add e c
        in (f,) }
      padding=((0, 0), (0, 0))
      window_dilation=(1, 1)
      window_dimensions=(1, 2)
      window_strides=(1, 1)
    ] a 0.0:f32[]
  in (b,) }"""
SINK = """{ lambda ; a:f32[3,4]. let
    b:f32[3,4] = sin a
    dce_sink[prevent_mlir_dce=False] b
  in (a,) }"""
TOP = """{ lambda ; a:f32[3,4]. let
    b:f32[3,2] _:i32[3,2] = approx_top_k[
      aggregate_to_topk=True
      is_max_k=True
      k=2
      recall_target=0.95
      reduction_dimension=-1
      reduction_input_size_override=-1
    ] a
  in (b,) }"""
TEXTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "stack": (sw.grad(lambda x: jnp.sum(jnp.stack([x, x * 2], 1))), (X,), STACK),
    "tile": (lambda x: jnp.tile(x, (2, 1)), (X,), TILE),
    "fold": (lambda x: lax.reduce_window(x, 0.0, lambda a, b: a * b + a, (1, 2), (1, 1), "VALID"), (X,), FOLD),
    "sink": (lambda x: (lax.dce_sink(jnp.sin(x)), x)[1], (X,), SINK),
    "top": (lambda x: lax.approx_max_k(x, 2)[0], (X,), TOP),
    "where": (lambda x: jnp.where(x > 1, x, 0.0), (X,), WHERE),
    "argsort": (jnp.argsort, (X,), SORT),
    "clip": (lambda x: jnp.clip(x, 0, 1), (X,), CLIP),
    "relu": (nn.relu, (X,), RELU),
    "gradient": (sw.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)), (X,), GRADIENT),
    "read": (lambda x, j: x[j], (X, 1), READ),
    "write": (lambda x: x.at[0].set(1.0), (X,), WRITE),
    "add": (lambda x, i: x.at[i].add(1.0), (X, INDEX), ADDED),
}


@pytest.mark.parametrize("name", TEXTS)
def test_programs_are_shown_as_jax_shows_them(name):
    function, arguments, text = TEXTS[name]
    assert str(sw.make_jaxpr(function)(*arguments)) == text


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_shown_computes_what_the_function_does(name):
    function, arguments, _ = TEXTS[name]
    shown = sw.make_jaxpr(function)(*arguments)
    results = sw.core.eval_jaxpr(shown.jaxpr, shown.consts, *arguments)
    np.testing.assert_array_equal(np.asarray(results[0]), np.asarray(function(*map(jnp.asarray, arguments))))


def test_what_is_compiled_has_neither_calls_nor_broadcasts():
    def f(x, j):
        return jnp.where(x > 1, nn.relu(x), 0.0) + x[j]

    sw.make_jaxpr(f)(X, 1)
    text = sw.jit(f).lower(X, 1).as_text()
    assert "_where" not in text
    assert "custom_jvp" not in text


def test_a_compiled_function_is_traced_for_each_purpose_once():
    traces = []

    @sw.jit
    def f(x):
        traces.append(None)
        return jnp.where(x > 1, x, 0.0)

    assert "_where" in str(sw.make_jaxpr(f)(X))
    f(X)
    f(X)
    sw.make_jaxpr(f)(X)
    assert len(traces) == 2
    assert "_where" not in f.lower(X).as_text()


def test_equal_calls_share_a_program():
    text = str(sw.make_jaxpr(lambda x: jnp.where(x > 2, x, -x) + jnp.where(x > 1, x, -x))(X))
    assert text.startswith("let _where = ")
    assert text.count("jaxpr=_where") == 2


def test_settings_and_keywords_are_no_operands():
    (call,) = sw.make_jaxpr(lambda x: jnp.sort(x, axis=0, descending=True))(X).eqns
    assert len(call.invars) == 1
    (call,) = sw.make_jaxpr(lambda x: jnp.clip(x, max=3.0))(X).eqns
    assert [v.aval.shape for v in call.invars] == [(3, 4), ()]


def test_wrong_arguments_raise_the_error_of_the_function():
    with pytest.raises(TypeError, match="sort"):
        sw.make_jaxpr(lambda x: cast(Any, jnp.sort)(x, 0, 1, 2, 3))(X)
    with pytest.raises(ValueError, match="broadcast"):
        sw.make_jaxpr(lambda x: jnp.where(x > 0, x, np.ones(3)))(X)


def test_derivatives_and_maps_of_calls_are_calls():
    assert "name=_where" in str(sw.make_jaxpr(sw.grad(lambda x: jnp.where(x > 0, x, 0.0).sum()))(X))
    assert "name=argsort" in str(sw.make_jaxpr(sw.vmap(jnp.argsort))(X))


def test_bodies_of_loops_show_calls():
    program = sw.make_jaxpr(lambda x: lax.scan(lambda c, y: (jnp.where(y > 0, c, y), None), x[0], x)[0])(X)
    assert "name=_where" in str(program)


def test_a_number_stands_where_it_is_used():
    (_, product) = sw.make_jaxpr(sw.grad(lambda x: x * 2.0))(1.0).eqns
    assert str(product).endswith("mul 1.0:f32[] 2.0:f32[]")
