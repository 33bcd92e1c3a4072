"""Callbacks: their results and effects, how often and where they are called, and what they may not do."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.base.errors import JaxRuntimeError
from shardwise.ops import control
from shardwise.ops.control.callback import io_callback, pure_callback
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh

f32 = np.float32
SHAPE = sw.ShapeDtypeStruct((3,), f32)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def doubled(x):
    assert isinstance(x, sw.Array)
    return np.asarray(x) * 2


@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("callback", [pure_callback, io_callback])
def test_the_result_is_the_functions(wrap, callback):
    out = wrap(lambda x: lax.add(callback(doubled, SHAPE, x), f32(1)))(np.arange(3, dtype=f32))
    assert (np.asarray(out) == [1, 3, 5]).all()


def test_trees_go_in_and_out():
    def fun(pair, *, scale):
        return {"sum": np.asarray(pair[0]) + np.asarray(pair[1]), "scale": float(scale)}

    types = {"sum": SHAPE, "scale": np.zeros((), f32)}
    out = sw.jit(lambda a, b: pure_callback(fun, types, (a, b), scale=3.0))(np.ones(3, f32), np.ones(3, f32))
    assert (np.asarray(out["sum"]) == 2).all() and np.asarray(out["scale"]) == 3


def test_effects_happen_in_the_programs_order_and_never_less_often():
    seen = []

    @sw.jit
    def f(x):
        for i in range(3):
            io_callback(lambda v, i=i: seen.append((i, float(v))), None, x, ordered=True)
        io_callback(lambda: seen.append("end"), None)
        return x

    f(f32(2))
    assert seen == [(0, 2.0), (1, 2.0), (2, 2.0), "end"]
    f(f32(3))
    assert len(seen) == 8


def _bodies(called):
    """Functions that call back in a body, each an identity."""
    forward, linear = sw.custom_jvp(called), sw.custom_vjp(called)
    forward.defjvp(lambda p, t: (forward(*p), *t))
    linear.defvjp(lambda x: (called(x), None), lambda _, g: (g,))
    mapped = sw.custom_batching.custom_vmap(called)
    mapped.def_vmap(lambda size, batched, x: (x, True))
    same = lambda v: v  # noqa: E731
    return {
        "custom_jvp": forward,
        "custom_vjp": linear,
        "custom_vmap": mapped,
        "custom_linear_solve": lambda x: lax.custom_linear_solve(same, x, lambda _, b: called(b)),
        "custom_root": lambda x: lax.custom_root(lambda y: y - x, x, lambda f, x0: called(x0), lambda g, y: y),
        "jit": sw.jit(called),
        "scan": lambda x: lax.scan(lambda c, _: (called(c), None), x, None, length=1)[0],
    }


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_in_bodies_happen_where_nobody_uses_the_results(ordered):
    seen = []

    def called(x):
        io_callback(lambda: seen.append(1), None, ordered=ordered)
        return x

    for name, f in _bodies(called).items():
        for program in (lambda x, f=f: (f(x), x + 1)[1], sw.grad(lambda x, f=f: f(f32(2)) + x)):
            seen.clear()
            sw.jit(program)(f32(1))
            assert (name, len(seen)) == (name, 1)


def test_equal_pure_calls_are_one_and_unused_ones_none():
    calls = []

    def fun(x):
        calls.append(1)
        return np.asarray(x)

    @sw.jit
    def f(x):
        pure_callback(fun, SHAPE, lax.neg(x))
        return lax.add(pure_callback(fun, SHAPE, x), pure_callback(fun, SHAPE, x))

    f(np.arange(3, dtype=f32))
    assert len(calls) == 1


def test_keys_arrive_as_their_words(capsys):
    """As in JAX; only a debug callback outside of any program gets the key itself."""
    from shardwise import debug, random

    seen = []
    key = random.key(3)
    sw.jit(lambda k: (io_callback(lambda k: seen.append(k), None, k), k)[1])(key)
    io_callback(lambda k: seen.append(k), None, key)
    assert [(k.dtype, k.tolist()) for k in seen] == [(np.uint32, [0, 3])] * 2
    sw.jit(lambda k: debug.print("{}", k))(key)
    debug.print("{}", key)
    assert capsys.readouterr().out == f"[0 3]\n{key}\n"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: pure_callback(lambda x: np.zeros(2, f32), SHAPE, x), JaxRuntimeError, "Incorrect output shape"),
        (lambda x: pure_callback(lambda x: np.zeros(3, np.int32), SHAPE, x), JaxRuntimeError, "Incorrect output dtype"),
        (lambda x: pure_callback(lambda x: (x, x), SHAPE, x), JaxRuntimeError, "structure"),
        (lambda x: pure_callback(lambda x: 1 / 0, SHAPE, x), JaxRuntimeError, "ZeroDivisionError"),
        (lambda x: pure_callback(doubled, 3, x), TypeError, "shape and a dtype"),
        (lambda x: pure_callback(doubled, np.zeros(3, np.float64), x), ValueError, "64-bit"),
        (lambda x: pure_callback(doubled, SHAPE, x, vmap_method="all"), ValueError, "vmap_method"),
        (lambda x: pure_callback(doubled, SHAPE, x, vmap_method="sequential", vectorized=True), ValueError, "one of"),
        (lambda x: pure_callback(3, SHAPE, x), TypeError, "takes a function"),  # pyright: ignore[reportArgumentType]
        (lambda x: pure_callback(doubled, SHAPE, x, sharding=3), NotImplementedError, "SingleDeviceSharding"),
        (lambda x: sw.grad(lambda x: lax.reduce_sum(pure_callback(doubled, SHAPE, x), (0,)))(x), ValueError, "JVP"),
    ],
)
def test_errors_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call(np.arange(3, dtype=f32))


# -- vmap ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("sequential", [((), (2,))] * 4),
        ("sequential_unrolled", [((), (2,))] * 4),
        ("expand_dims", [((4,), (1, 2))]),
        ("broadcast_all", [((4,), (4, 2))]),
        ("legacy_vectorized", [((4,), (2,))]),
    ],
)
def test_vmap_methods(method, calls):
    shapes = []

    def fun(x, y):
        shapes.append((x.shape, y.shape))
        x, y = np.asarray(x), np.asarray(y)
        return x[..., None] * y

    x, y = np.arange(4, dtype=f32), np.arange(1, 3, dtype=f32)
    result = sw.ShapeDtypeStruct((2,), f32)
    out = sw.vmap(lambda x: pure_callback(fun, result, x, y, vmap_method=method))(x)
    assert shapes == calls
    assert (np.asarray(out) == x[:, None] * y).all()


def test_vmap_without_a_method_calls_one_by_one_in_the_seed_era_only():
    def mapped(x):
        return sw.vmap(lambda x: pure_callback(doubled, sw.ShapeDtypeStruct((), f32), x))(x)

    x = np.arange(4, dtype=f32)
    assert (np.asarray(mapped(x)) == 2 * x).all()
    with use_dialect("latest"), pytest.raises(NotImplementedError, match="vmap_method"):
        mapped(x)


def test_io_callbacks_under_vmap():
    seen = []
    sw.vmap(lambda x: (io_callback(lambda x: seen.append(float(x)), None, x), x)[1])(np.arange(3, dtype=f32))
    assert seen == [0, 1, 2]
    seen.clear()
    sw.vmap(sw.vmap(lambda x: (sw.debug.callback(lambda x: seen.append(int(x)), x), x)[1]))(np.arange(6).reshape(3, 2))
    assert seen == [0, 2, 4, 1, 3, 5]  # the inner vmap calls the mapped function once per element
    with pytest.raises(ValueError, match="ordered"):
        sw.vmap(lambda x: io_callback(print, None, x, ordered=True))(np.arange(3, dtype=f32))


# -- devices ----------------------------------------------------------------------------------------------------------------


def test_auto_mode_calls_once_with_the_global_value(mesh):
    seen = []

    def fun(x):
        seen.append(x.shape)
        return np.asarray(x) * 2

    x = sw.device_put(np.arange(64, dtype=f32).reshape(8, 8), NamedSharding(mesh, P("x", "y")))
    out = sw.jit(lambda x: lax.add(pure_callback(fun, sw.ShapeDtypeStruct((8, 8), f32), x), x))(x)
    assert seen == [(8, 8)]
    assert (np.asarray(out) == 3 * np.asarray(x)).all()
    assert out.sharding.is_equivalent_to(x.sharding, 2)


def test_shard_map_calls_once_per_device_in_mesh_order(mesh):
    seen = []

    def fun(x):
        seen.append(float(np.asarray(x)[0, 0]))
        return np.asarray(x) + 1

    x = np.arange(64, dtype=f32).reshape(8, 8)
    body = lambda x: io_callback(fun, sw.ShapeDtypeStruct(x.shape, x.dtype), x)  # noqa: E731
    out = sw.jit(sw.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")))(x)
    assert (np.asarray(out) == x + 1).all()
    assert seen == [x[4 * i, 2 * j] for i in range(2) for j in range(4)]


def test_only_the_devices_that_get_there_call(mesh):
    seen = []

    def body(x):
        i = lax.axis_index("y")

        def call(i):
            io_callback(lambda i: seen.append(int(i)), None, i)
            return i

        control.cond(lax.gt(i, 1), call, lambda i: i, i)
        control.while_loop(lambda n: lax.lt(n, i), lambda n: lax.add(call(lax.add(n, 10)), -9), lax.mul(i, 0))
        return x

    sw.jit(sw.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")))(np.zeros((2, 4), f32))
    assert sorted(n for n in seen if n < 10) == [2, 2, 3, 3]
    assert sorted(n for n in seen if n >= 10) == sorted([10] * 6 + [11] * 4 + [12] * 2)


# -- how often, and with what ----------------------------------------------------------------------------------------------

_called = []


def _summed(x):
    _called.append(np.shape(x))
    return np.float32(np.sum(x))


def _by_last_dim(x):
    _called.append(np.shape(x))
    return np.sum(x, -1)


_SCALAR = sw.ShapeDtypeStruct((), f32)


def _debugged(x, **how):
    sw.debug.callback(lambda v: _called.append(np.shape(v)), x, **how)
    return x.sum()


CALLERS = {
    "pure": lambda x: pure_callback(_summed, _SCALAR, x),
    "pure, sequential": lambda x: pure_callback(_summed, _SCALAR, x, vmap_method="sequential"),
    "pure, expand_dims": lambda x: pure_callback(_by_last_dim, _SCALAR, x, vmap_method="expand_dims"),
    "io": lambda x: io_callback(_summed, _SCALAR, x),
    "io, ordered": lambda x: io_callback(_summed, _SCALAR, x, ordered=True),
    "debug": _debugged,
    "debug, ordered": lambda x: _debugged(x, ordered=True),
}
# How real JAX calls back: the program, how often for a pure function, how often for others, what results.
PLACES = {
    "map": (lambda g: lambda xs: lax.map(g, xs), 4, 4, [3, 12, 21, 30]),
    "carry": (lambda g: lambda xs: lax.scan(lambda c, x: (c + g(x), c * 2), f32(0), xs)[0], 4, 4, 66),
    "stacked": (lambda g: lambda xs: lax.scan(lambda c, x: (c, g(x) + x), f32(0), xs)[1][:, 0], 4, 4, [3, 15, 27, 39]),
    "same in every step": (lambda g: lambda xs: lax.scan(lambda c, x: (c + x[0], g(xs[0])), f32(0), xs)[1], 1, 4, [3] * 4),
    "loop": (lambda g: lambda xs: lax.fori_loop(0, 4, lambda i, c: c + g(xs[i]), f32(0)), 4, 4, 66),
    "inner map": (lambda g: lambda xs: lax.map(lambda x: lax.map(lambda y: g(y[None]), x).sum(), xs), 12, 12, [3, 12, 21, 30]),
    "unused": (lambda g: lambda xs: (g(xs[0]), xs[0, 0])[1], 0, 1, 0),
    "branch": (lambda g: lambda xs: lax.map(lambda x: lax.cond(x[0] > 2, g, lambda x: f32(0), x), xs), 3, 3, [0, 12, 21, 30]),
}  # fmt: skip


@pytest.mark.parametrize("dialect", ["seed", "latest"])
@pytest.mark.parametrize("place", list(PLACES))
def test_the_users_function_is_called_as_often_as_the_program_says(place, dialect):
    make, pure, impure, want = PLACES[place]
    xs = np.arange(12, dtype=f32).reshape(4, 3)
    with use_dialect(dialect):
        for name, call in CALLERS.items():
            _called.clear()
            out = sw.jit(make(call))(sw.numpy.asarray(xs))
            np.testing.assert_array_equal(np.asarray(out), want, err_msg=name)
            assert len(_called) == (pure if name.startswith("pure") else impure), name
            assert set(_called) <= {(1,) if place == "inner map" else (3,)}, name


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"partitioned": True}])
def test_errors_of_debug_callbacks(options):
    def refuse(x):
        raise KeyError("no such thing")

    call = lambda x: sw.debug.callback(refuse, x, **options)  # noqa: E731
    with pytest.raises(KeyError, match="no such thing"):  # outside of programs
        call(1.0)
    with pytest.raises(JaxRuntimeError, match="raised KeyError: 'no such thing'"):
        sw.jit(call)(1.0)


@pytest.mark.parametrize("callback", [pure_callback, io_callback])
def test_sequences_of_any_kind_are_the_values_asked_for(callback):
    out = sw.jit(lambda x: callback(lambda x: [x, (x * 2,)], (SHAPE, SHAPE), x))(np.ones(3, f32))
    assert isinstance(out, tuple)
    assert [float(x[0]) for x in out] == [1, 2]
    with pytest.raises(JaxRuntimeError, match="structure"):
        sw.jit(lambda x: callback(lambda x: [x], (SHAPE, SHAPE), x))(np.ones(3, f32)).block_until_ready()
