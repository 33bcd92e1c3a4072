"""Control flow: values, carries of any structure and type, shardings, and predicates that differ between devices."""

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.ops import control

f32 = np.float32


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


BOTH = pytest.mark.parametrize("wrap", [lambda f: f, sw.jit], ids=["eager", "jit"])


# -- values -------------------------------------------------------------------------------------------------------------------


@BOTH
def test_while_loop_carries_trees(wrap):
    def run(x):
        start = {"i": 0, "x": (x, [2.0])}
        return control.while_loop(
            lambda c: lax.lt(c["i"], 5),
            lambda c: {"i": lax.add(c["i"], 1), "x": (lax.mul(c["x"][0], c["x"][1][0]), c["x"][1])},
            start,
        )

    out = wrap(run)(np.arange(3, dtype=f32))
    assert np.asarray(out["i"]) == 5
    assert (np.asarray(out["x"][0]) == np.arange(3) * 32).all()


@BOTH
def test_while_loop_that_never_runs_gives_the_initial_value(wrap):
    out = wrap(lambda x: control.while_loop(lambda c: lax.lt(c, f32(0)), lambda c: lax.add(c, f32(1)), x))(f32(3))
    assert np.asarray(out) == 3


@BOTH
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_equals_a_python_loop(wrap, reverse):
    xs = {"a": np.arange(12, dtype=f32).reshape(4, 3), "n": np.arange(4, dtype=np.int32)}

    def step(c, x):
        new = lax.add(c, x["a"])
        return new, (lax.mul(new, f32(2)), x["n"])

    carry, (ys, ns) = wrap(lambda c, xs: control.scan(step, c, xs, reverse=reverse))(np.zeros(3, f32), xs)
    expected, rows = np.zeros(3, f32), {}
    for i in reversed(range(4)) if reverse else range(4):
        expected = expected + xs["a"][i]
        rows[i] = expected * 2
    assert (np.asarray(carry) == expected).all()
    assert (np.asarray(ys) == [rows[i] for i in range(4)]).all()
    assert (np.asarray(ns) == np.arange(4)).all()


def test_scan_without_arrays_needs_a_length():
    carry, ys = control.scan(lambda c, x: (lax.add(c, 1), c), 0, None, length=4)
    assert np.asarray(carry) == 4 and (np.asarray(ys) == np.arange(4)).all()
    assert control.scan(lambda c, x: (c, None), 1.5, None, length=2)[1] is None


def test_scan_of_no_steps_has_empty_outputs():
    carry, ys = control.scan(lambda c, x: (c, (x, lax.convert_element_type(x, f32))), 7, np.zeros((0, 3), np.int32))
    assert np.asarray(carry) == 7
    assert ys[0].shape == ys[1].shape == (0, 3)
    assert (ys[0].dtype, ys[1].dtype) == (np.int32, np.float32)


@BOTH
def test_fori_loop_with_static_and_traced_bounds(wrap):
    def run(n, x):
        return control.fori_loop(2, n, lambda i, c: lax.add(c, lax.convert_element_type(i, f32)), x)

    assert np.asarray(wrap(lambda x: run(6, x))(f32(0))) == 14
    assert np.asarray(wrap(run)(6, f32(0))) == 14
    assert np.asarray(wrap(lambda x: run(0, x))(f32(9))) == 9


@BOTH
@pytest.mark.parametrize("pred", [True, False, 3, 0.0, np.bool_(True)])
def test_cond_takes_a_branch(wrap, pred):
    def run(p, x):
        return control.cond(p, lambda x: {"y": lax.neg(x)}, lambda x: {"y": lax.mul(x, f32(2))}, x)

    assert np.asarray(wrap(run)(pred, f32(3))["y"]) == (-3 if pred else 6)


def test_cond_takes_operands_in_every_way():
    assert np.asarray(control.cond(True, lambda x, y: x, lambda x, y: y, 1, 2)) == 1
    assert np.asarray(control.cond(False, lambda x: x, lambda x: lax.neg(x), operand=3)) == -3
    assert np.asarray(control.cond(True, 1.0, lambda x: x, 2.0, lambda x: lax.neg(x))) == 1  # pyright: ignore[reportArgumentType]
    assert np.asarray(control.cond(False, 1.0, lambda x: x, 2.0, lambda x: lax.neg(x))) == -2  # pyright: ignore[reportArgumentType]
    assert np.asarray(control.cond(True, lambda: 1, lambda: 2)) == 1


@BOTH
@pytest.mark.parametrize(("index", "expected"), [(-3, 1), (0, 1), (1, -1), (2, 5), (9, 5)])
def test_switch_clamps_its_index(wrap, index, expected):
    branches = [lambda x: x, lambda x: lax.neg(x), lambda x: lax.mul(x, 5)]
    assert np.asarray(wrap(lambda i: control.switch(i, branches, 1))(index)) == expected


def test_platform_dependent_takes_the_function_for_cpus():
    assert control.platform_dependent(3, cpu=lambda x: x + 1, tpu=lambda x: x) == 4
    assert control.platform_dependent(3, tpu=lambda x: x, default=lambda x: x + 2) == 5
    with pytest.raises(NotImplementedError, match="tpu"):
        control.platform_dependent(3, tpu=lambda x: x)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 11])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(n, reverse):
    x = np.arange(2 * n, dtype=np.int32).reshape(2, n)
    out = control.associative_scan(lambda a, b: lax.add(a, b), x, reverse=reverse, axis=1)
    expected = np.cumsum(x[:, ::-1], 1)[:, ::-1] if reverse else np.cumsum(x, 1)
    assert (np.asarray(out) == expected).all()


def test_associative_scan_of_a_noncommutative_tree():
    a, b = np.arange(1, 6, dtype=f32), np.arange(5, dtype=f32)

    def then(f, g):  # x -> g(f(x)) for linear functions
        return lax.mul(f[0], g[0]), lax.add(lax.mul(f[1], g[0]), g[1])

    got = control.associative_scan(then, (a, b))
    scale, shift = 1.0, 0.0
    for i in range(5):
        scale, shift = scale * a[i], shift * a[i] + b[i]
        assert float(np.asarray(got[0])[i]) == scale
        assert float(np.asarray(got[1])[i]) == shift


def test_bodies_close_over_values_and_nest():
    w = np.full(3, 2, f32)

    def run(x):
        def outer(i, c):
            inner, _ = control.scan(lambda d, _: (lax.mul(d, w), None), c, None, length=2)
            return control.cond(lax.lt(i, 1), lambda: lax.add(inner, x), lambda: inner)

        return control.fori_loop(0, 3, outer, x)

    expected = np.ones(3)
    for i in range(3):
        expected = expected * 4 + (1 if i < 1 else 0)
    assert (np.asarray(sw.jit(run)(np.ones(3, f32))) == expected).all()
    assert (np.asarray(run(np.ones(3, f32))) == expected).all()


def test_a_body_is_traced_once():
    traced = []

    def step(c, x):
        traced.append(1)
        return lax.add(c, x), c

    for _ in range(3):
        control.scan(step, np.zeros((), f32), np.arange(3, dtype=f32))
    assert len(traced) == 1
    control.scan(step, np.zeros((), np.int32), np.arange(3, dtype=np.int32))
    assert len(traced) == 2


def test_equal_bodies_are_one_program():
    def make():
        return lambda c, x: (lax.add(c, x), lax.mul(c, x))

    from shardwise.base.tree import tree_structure
    from shardwise.ops.control.bodies import trace_body

    types = [np_type((), f32), np_type((), f32)]
    first, second = (trace_body(make(), tree_structure((0, 0)), types, "body") for _ in range(2))
    assert first.program is second.program


def np_type(shape, dtype):
    from shardwise.ir import ShapedArray

    return ShapedArray(shape, np.dtype(dtype))


def test_disable_jit_runs_python():
    seen = []
    with sw.disable_jit():
        out = control.while_loop(lambda c: lax.lt(c, 3), lambda c: seen.append(int(c)) or lax.add(c, 1), 0)
        carry, ys = control.scan(lambda c, x: (lax.add(c, x), float(c)), f32(0), np.arange(3, dtype=f32), reverse=True)
        assert control.cond(f32(1) > 0, lambda: "yes", lambda: "no") == "yes"
        assert control.switch(1, [lambda: "a", lambda: "b"]) == "b"
    assert np.asarray(out) == 3 and seen == [0, 1, 2]
    assert np.asarray(carry) == 3 and (np.asarray(ys) == [3, 2, 0]).all()


# -- types ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda m, one: m.fori_loop(0, 3, lambda i, c: c + i, one),
        lambda m, one: m.while_loop(lambda c: c < 5, lambda c: c + 1.0, 0),
        lambda m, one: m.while_loop(lambda c: c < 5, lambda c: c + 1, np.int32(0)),
        lambda m, one: m.scan(lambda c, x: (c + x, x), 0, np.arange(3, dtype=f32)),
        lambda m, one: m.scan(lambda c, x: (c + x, (c, c + 1)), 0.0, np.arange(3, dtype=f32)),
        lambda m, one: m.scan(lambda c, x: (c + f32(1), c * x), 0.0, np.zeros(2, ml_dtypes.bfloat16)),
        lambda m, one: m.scan(lambda c, x: ((c[1], c[0] + 2.0), c), (0.0, f32(1)), np.arange(3, dtype=f32)),
        lambda m, one: m.while_loop(lambda c: c < 3, lambda c: c + f32(1), 0.0),
        lambda m, one: m.cond(True, lambda: 1.0, lambda: np.float32(2)),
        lambda m, one: m.cond(True, lambda: 1.0, lambda: 2.0),
        lambda m, one: m.switch(1, [lambda x: x, lambda x: x * 2], 3),
    ],
)
def test_weak_types_of_results_are_jaxs(jax, call):
    import shardwise.numpy  # noqa: F401  (installs operators on arrays)

    for one in (1, 1.0):
        ours, theirs = sw.tree_util.tree_leaves(call(control, one)), jax.tree.leaves(call(jax.lax, one))
        for a, b in zip(ours, theirs, strict=True):
            assert (a.dtype, bool(a.weak_type)) == (b.dtype, bool(b.weak_type))
            assert (np.asarray(a) == np.asarray(b)).all()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: control.scan(lambda carry, x: (np.zeros(2, f32), x), 0, np.arange(3.0, dtype=f32)),
            TypeError,
            r"carry has type .*f32\[\], the output f32\[2\], so the shapes",
        ),
        (
            lambda: control.scan(lambda c, x: ((c[0], f32(1)), x), (1, np.int32(1)), np.arange(3)),
            TypeError,
            r"c\[1\] has type i32\[\], the output f32\[\], so the dtypes",
        ),
        (lambda: control.scan(lambda c, x: ({"a": c}, x), (0,), np.arange(3)), TypeError, "same pytree structure"),
        (lambda: control.scan(lambda c, x: c, 0, np.arange(3)), TypeError, "must be a pair"),
        (lambda: control.scan(lambda c, x: (c, "y"), 0, np.arange(3)), TypeError, "must return arrays"),
        (lambda: control.scan(lambda c, x: (c, x), 0, 3.0), ValueError, "no leading axis"),
        (lambda: control.scan(lambda c, x: (c, x), 0), ValueError, "no values to scan over"),
        (lambda: control.scan(lambda c, x: (c, x), 0, np.arange(3), length=4), ValueError, "disagrees"),
        (lambda: control.scan(lambda c, x: (c, x), 0, (np.arange(3), np.arange(4))), ValueError, "different leading"),
        (lambda: control.scan(lambda c, x: (c, x), 0, np.arange(3), unroll=-1), ValueError, "unroll"),
        (lambda: control.scan(3, 0, np.arange(3)), TypeError, "f argument should be a callable"),  # pyright: ignore[reportArgumentType]
        (lambda: control.while_loop(lambda c: c, lambda c: c, 0), TypeError, "boolean scalar"),
        (lambda: control.while_loop(lambda c: (lax.lt(c, 1),), lambda c: c, 0), TypeError, "pytree"),
        (lambda: control.while_loop(lambda c: lax.lt(c, 1), lambda c: (c, c), 0), TypeError, "same pytree structure"),
        (
            lambda: control.while_loop(1, lambda c: c, 0),  # pyright: ignore[reportArgumentType]
            TypeError,
            "body_fun and cond_fun arguments should be callable",
        ),
        (lambda: control.fori_loop(np.uint32(0), np.int32(3), lambda i, c: c, 0), TypeError, "equal types"),
        (lambda: control.fori_loop(0, 3, lambda i, c: (c, c), 0), TypeError, "same pytree structure"),
        (lambda: sw.jit(lambda n: control.fori_loop(0, n, lambda i, c: c, 0, unroll=2))(3), ValueError, "unroll"),
        (lambda: control.cond(True, lambda: 1, lambda: f32(2)), TypeError, "so the dtypes do not match"),
        (lambda: control.cond(True, lambda: (1,), lambda: [1]), TypeError, "same pytree structure"),
        (lambda: control.cond(np.ones(2), lambda: 1, lambda: 2), TypeError, "must be a scalar"),
        (lambda: control.cond("a", lambda: 1, lambda: 2), TypeError, "must be a scalar"),
        (lambda: control.switch(1.5, [lambda: 1, lambda: 2]), TypeError, "integer"),
        (lambda: control.switch(np.arange(2), [lambda: 1, lambda: 2]), TypeError, "scalar"),
        (lambda: control.switch(0, []), ValueError, "Empty branch"),
        (lambda: control.associative_scan(lax.add, (np.arange(3), np.arange(4))), ValueError, "same first dimension"),
        (lambda: control.associative_scan(3, np.arange(3)), TypeError, "callable"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_errors_say_what_does_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call()


# -- under vmap ---------------------------------------------------------------------------------------------------------------------------


def test_mapped_loops_run_as_long_as_each_element_wants():
    x = np.arange(1, 7, dtype=f32)

    def run(x):
        return control.while_loop(lambda c: lax.lt(c, f32(50)), lambda c: lax.mul(c, f32(3)), x)

    expected = x.copy()
    while (expected < 50).any():
        expected = np.where(expected < 50, expected * 3, expected)
    assert (np.asarray(sw.vmap(run)(x)) == expected).all()
    assert (np.asarray(sw.jit(sw.vmap(run))(x)) == expected).all()


def test_one_value_enters_a_mapped_loop_as_several_carries():
    """The loop is handed what nobody else needs: each value once, however often it enters."""
    keys, rates = sw.random.split(sw.random.key(0), 2), np.array([0.5, 12.0], f32)
    mapped = sw.vmap(lambda key: sw.random.poisson(key, rates))(keys)
    for row, key in zip(mapped, keys, strict=True):
        assert (np.asarray(row) == np.asarray(sw.random.poisson(key, rates))).all()


def test_mapped_branches_and_scans():
    x = np.arange(12, dtype=f32).reshape(3, 4)
    w = np.arange(4, dtype=f32)

    def branch(x):
        return control.cond(lax.gt(lax.reduce_sum(x, (0,)), f32(20)), lambda x: lax.neg(x), lambda x: lax.add(x, w), x)

    out = np.asarray(sw.vmap(branch)(x))
    assert (out == np.where(x.sum(1, keepdims=True) > 20, -x, x + w)).all()

    def running(x):
        return control.scan(
            lambda c, y: (lax.add(c, lax.mul(y, w)), lax.reduce_sum(c, (0,))), lax.full((4,), 0, f32), x
        )

    carry, ys = sw.jit(sw.vmap(running))(x)
    np.testing.assert_allclose(np.asarray(carry), x.sum(1, keepdims=True) * w)
    sums = np.concatenate([np.zeros((3, 1)), np.cumsum(x, 1)[:, :-1]], 1) * w.sum()
    np.testing.assert_allclose(np.asarray(ys), sums)


@pytest.mark.parametrize(
    "bounds", [(0.0, 3.0), (0.5, 3.0), (0.0, 2.5), (np.float32(1), np.float32(3)), (np.int8(0), 3)]
)
def test_traced_bounds_count_in_their_type(bounds):
    seen = []

    def body(i, total):
        seen.append((i.dtype, i.aval.weak_type))
        return total + i

    count = lambda low, high: lax.fori_loop(low, high, body, 0.0)  # noqa: E731
    np.testing.assert_allclose(sw.jit(count)(*bounds), np.arange(*bounds).sum())
    first = sw.numpy.asarray(bounds[0])
    assert set(seen) == {(first.dtype, first.aval.weak_type)}


# -- carries that no step changes ---------------------------------------------------------------------------------------


@BOTH
def test_reverse_mode_goes_past_a_while_loop_that_leaves_a_carry_as_it_is(wrap):
    def last(x):
        return control.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1]), (0, x))[1] ** 2

    assert float(wrap(sw.grad(last))(3.0)) == 6.0
    with pytest.raises(ValueError, match="Reverse-mode"):  # the test reads it, so that it stays a carry
        sw.grad(lambda x: control.while_loop(lambda c: c[1] < 0, lambda c: (c[0] + c[1], c[1]), (x, x))[0])(1.0)


def test_unchanged_carries_are_constants_of_the_program():
    def f(a, b):
        return control.scan(lambda c, x: ((c[0], c[1] + c[0]), x), (a, b), np.arange(3, dtype=f32))

    (scan,) = [e for e in sw.make_jaxpr(f)(1.0, 2.0).eqns if e.primitive.name == "scan"]
    assert (scan.params["num_consts"], scan.params["num_carry"], len(scan.outvars)) == (1, 1, 1)
    (a, b), xs = sw.jit(f)(1.0, 2.0)
    assert (float(a), float(b), xs.tolist()) == (1.0, 5.0, [0, 1, 2])


@BOTH
def test_what_a_loop_hands_through_is_an_array(wrap):
    kept, xs = wrap(lambda: control.scan(lambda c, x: (c, x), 2.0, np.arange(3, dtype=f32)))()
    assert (float(kept), kept.weak_type, xs.tolist()) == (2.0, True, [0, 1, 2])
    assert float(wrap(lambda: control.fori_loop(0, 3, lambda _, c: c, 1.5))()) == 1.5


def test_unchanged_carries_are_mapped_only_where_they_differ():
    kept, counts = sw.vmap(
        lambda n, c: control.fori_loop(0, n, lambda _, c: (c[0], c[1] + c[0]), (c, 0.0)), in_axes=(0, None)
    )(np.arange(3), 2.0)
    assert (kept.tolist(), counts.tolist()) == ([2, 2, 2], [0, 2, 4])
