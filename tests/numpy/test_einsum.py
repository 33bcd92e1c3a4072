"""einsum and the matrix products: values, types and weakness of the oracle, on one device and split over many."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as face
from shardwise.base.errors import ShardingTypeError
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.rounding import assert_einsum, assert_same_products

RNG = np.random.default_rng(0)
P = PartitionSpec


def normal(*shape, dtype="float32"):
    x = RNG.normal(size=shape)
    return (x * 5).astype(dtype) if np.dtype(dtype).kind in "iu" else x.astype(dtype)


def mesh(shape=(2, 4), names=("x", "y")):
    return sw.sharding.Mesh(np.array(sw.devices()[: int(np.prod(shape))]).reshape(shape), names)


def put(x, *spec):
    return sw.device_put(x, NamedSharding(mesh(), P(*spec)))


EXPRESSIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,jk->ki", (3, 4), (4, 5)),
    ("ji,kj->ik", (4, 3), (5, 4)),
    ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)),
    ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("i...,i...->...", (3, 4, 5), (3, 5)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("iij->j", (4, 4, 3)),
    ("iji->ji", (4, 3, 4)),
    ("iii->i", (3, 3, 3)),
    ("ij->", (3, 4)),
    ("ij->ji", (3, 4)),
    ("ba", (3, 4)),
    ("...a->...", (2, 3, 4)),
    ("...a->a", (2, 3, 4)),
    ("...->", (2, 3, 4)),
    ("a...b->ba", (2, 3, 4)),
    ("a...,...->a", (2, 3, 4), (3, 4)),
    ("...a,...b->ab", (2, 3, 4), (1, 3, 5)),
    ("ii,ij->j", (3, 3), (3, 4)),
    ("i,i", (5,), (5,)),
    ("i,j->ij", (5,), (3,)),
    ("i,j->ji", (5,), (3,)),
    ("i,j->", (5,), (3,)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,kj->", (3, 4), (2, 4)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 6)),
    ("ij,jk,kl,lm->mi", (3, 4), (4, 5), (5, 6), (6, 2)),
    ("i,i,i->i", (4,), (4,), (4,)),
    ("ab,bc,ad->", (2, 3), (3, 4), (2, 5)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("ij,ij->i", (3, 1), (3, 4)),
    ("b...,b...->b...", (2, 1, 3), (2, 4, 1)),
    ("i,ij,j", (3,), (3, 4), (4,)),
    (",ij->ji", (), (3, 4)),
]


@pytest.mark.parametrize("case", EXPRESSIONS, ids=lambda c: c[0])
def test_einsum_is_that_of_numpy(case):
    text, *shapes = case
    arrays = [normal(*s, dtype="float64") for s in shapes]
    with sw.enable_x64():
        for optimize in ("auto", True, False, "greedy"):
            got = face.einsum(text, *arrays, optimize=optimize)
            assert_einsum(got, text, *arrays)
        jitted = sw.jit(lambda *xs: face.einsum(text, *xs))(*arrays)
        assert_einsum(jitted, text, *arrays)


def test_lists_for_labels():
    a, b = normal(3, 4), normal(4, 5)
    assert_einsum(face.einsum(a, [0, 1], b, [1, 2], [0, 2]), "ij,jk->ik", a, b)
    assert_einsum(face.einsum(a, [5, 7], b, [7, 9]), "ij,jk->ik", a, b)
    assert_einsum(face.einsum(a, [..., 0], b, [0, 2], [..., 2]), "ij,jk->ik", a, b)
    x = normal(3, 4)
    np.testing.assert_array_equal(face.einsum(x, [1, 0]), x.T)


@pytest.mark.parametrize(
    ("text", "same"), [("b3,3k->bk", "bj,jk->bk"), ("1$", "ji"), ("_1", "ji"), ("é2->2é", "ij->ji")]
)
def test_any_character_is_a_label(text, same):
    arrays = [normal(3, 4), normal(4, 5)][: 1 + text.count(",")]
    assert_einsum(face.einsum(text, *arrays), same, *arrays)
    jax = pytest.importorskip("jax")
    np.testing.assert_allclose(face.einsum(text, *arrays), jax.numpy.einsum(text, *arrays), rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("ij,jk", (3, 4)), "operands"),
        (("ij", (3, 4, 5)), "shape"),
        (("ij,jk->ik", (3, 4), (5, 6)), "size"),
        (("ii", (3, 4)), "sizes"),
        (("ij->ik", (3, 4)), "output"),
        (("ij->ii", (3, 4)), "output"),
        (("i.->i", (3, 4)), "labels"),
        (("i-j->i", (3, 4)), "labels"),
        (("ij",), "no operands"),
    ],
)
def test_bad_subscripts_are_value_errors(args, words):
    text, *shapes = args
    with pytest.raises(ValueError, match=words):
        face.einsum(text, *map(np.ones, shapes))


def test_einsum_path():
    path, report = face.einsum_path("ij,jk,kl->il", *(np.ones(s) for s in ((2, 30), (30, 40), (40, 3))))
    assert sorted(i for step in path for i in step) == [0, 0, 1, 1] or len(path) == 2
    assert "Complete contraction" in str(report)
    assert face.einsum_path("ij,jk,kl->il", np.ones((2, 3)), np.ones((3, 4)), np.ones((4, 5)), optimize=False)[0][
        0
    ] == (0, 1)


TYPES = ["bool", "int8", "uint32", "bfloat16", "float16", "float32", "complex64"]


def typed(n):
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, n, n))


def test_types_and_weakness_are_the_oracles():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    ours = lambda f, *xs: f(*xs)  # noqa: E731
    for left in [*TYPES, 2, 2.5]:
        for right in [*TYPES, 2, 2.5]:
            sides = [np.ones((2, 2), typed(t)) if isinstance(t, str) else t for t in (left, right)]
            for preferred in (None, "float32", "int32"):
                for name in ("dot", "matmul", "einsum", "tensordot", "vdot", "inner", "outer", "kron"):
                    scalars = any(isinstance(s, int | float) for s in sides)
                    if scalars and name in ("matmul", "tensordot", "vdot", "einsum"):
                        continue
                    if name == "kron" and (left, right) == ("bool", "bool"):
                        continue  # JAX has no product of bools here
                    if name == "inner" and scalars and preferred and "complex64" in (left, right):
                        continue  # JAX warns
                    text = ("ij,jk->ik",) if name == "einsum" else ()
                    options = (
                        {} if preferred is None or name in ("outer", "kron") else dict(preferred_element_type=preferred)
                    )

                    def outcome(f, module, name=name, text=text, sides=sides, options=options):
                        try:
                            out = f(lambda *xs: getattr(module, name)(*text, *xs, **options), *sides)
                        except TypeError:
                            return TypeError
                        return np.dtype(out.dtype).name, out.weak_type, out.shape

                    assert outcome(ours, face) == outcome(jax.eval_shape, jnp), (name, left, right, preferred)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((1, 3, 4), (2, 4, 5)),
        ((2, 3, 4), (1, 4, 5)),
        ((1, 3, 4), (1, 4, 5)),
        ((6, 1, 3, 4), (2, 4, 5)),
        ((6, 2, 3, 4), (1, 2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((6, 1, 1, 3, 4), (1, 7, 4, 2)),
        ((1, 3, 4), (4, 5)),
        ((3, 4), (1, 4, 5)),
        ((1, 3, 4), (4,)),
    ],
)
def test_matmul_broadcasts_as_numpy(a, b):
    x, y = normal(*a), normal(*b)
    got = face.matmul(x, y)
    assert_same_products(got, np.matmul(x, y), np.matmul(np.abs(x), np.abs(y)), a[-1])


def test_products_are_those_of_numpy():
    with sw.enable_x64():
        a, b, c = normal(3, 4, dtype="float64"), normal(4, 5, dtype="float64"), normal(2, 4, 5, dtype="float64")
        z = a + 1j * normal(3, 4, dtype="float64")
        check = lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-12)  # noqa: E731
        check(face.dot(a, b), np.dot(a, b))
        check(face.dot(a, c), np.dot(a, c))
        check(face.dot(2.0, a), 2 * a)
        check(face.vdot(z, a), np.vdot(z, a))
        check(face.inner(a, b.T), np.inner(a, b.T))
        check(face.inner(a, 3.0), a * 3)
        check(face.outer(a, b), np.outer(a, b))
        check(face.tensordot(c, c, 3), np.tensordot(c, c, 3))
        check(face.tensordot(a, c, ((1,), (1,))), np.tensordot(a, c, ((1,), (1,))))
        check(face.tensordot(a, c, (-1, 1)), np.tensordot(a, c, (-1, 1)))
        check(face.kron(a, c), np.kron(a, c))
        check(face.vecdot(z, a), np.vecdot(z, a))
        check(face.vecdot(c, b[None], axis=1), cast(Any, np).vecdot(c, b[None], axis=1))  # NumPy's types have no axis
        check(face.matvec(c, b[:1]), np.matvec(c, b[:1]))
        check(face.vecmat(z[:, None], c[:1]), np.vecmat(z[:, None], c[:1]))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: face.matmul(1.0, np.ones(3)), ValueError),
        (lambda: face.matmul(np.ones((2, 3)), np.ones((4, 5))), TypeError),
        (lambda: face.matmul(np.ones((2, 3, 4)), np.ones((3, 4, 5))), ValueError),
        (lambda: face.dot(np.ones((2, 3)), np.ones((4, 5))), TypeError),
        (lambda: face.tensordot(np.ones((2, 3)), np.ones((3, 5)), 3), TypeError),
        (lambda: face.tensordot(np.ones((2, 3)), np.ones((3, 5)), ((1,), (0, 1))), TypeError),
        (lambda: face.tensordot(np.ones((2, 3)), np.ones((3, 5)), cast(Any, "a")), TypeError),
        (lambda: face.vecdot(np.ones(3), np.ones(4)), ValueError),
        (lambda: face.matvec(np.ones((2, 3)), np.ones(4)), ValueError),
        (lambda: face.outer(np.ones(3), np.ones(4), cast(Any, np.ones((3, 4)))), NotImplementedError),
        (lambda: face.einsum("i->i", np.ones(3), out=cast(Any, np.ones(3))), NotImplementedError),
        (lambda: face.dot([1, 2], np.ones(2)), TypeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


# -- split over devices --------------------------------------------------------------------------------------------------------

SPLITS = [
    ("ij,jk->ik", (8, 8), ("x", "y"), (8, 4), ("y",), ("x",)),
    ("ij,jk->ik", (8, 8), ("x",), (8, 4), (None, "y"), ("x", "y")),
    ("ij,jk->ik", (8, 8), (None, "y"), (8, 4), ("y",), ()),
    ("ij,jk->ik", (8, 8), (("x", "y"),), (8, 4), (), (("x", "y"),)),
    ("bij,bjk->bik", (8, 4, 6), ("x",), (8, 6, 4), ("x", None, "y"), ("x", None, "y")),
    ("bqhd,bkhd->bhqk", (4, 6, 8, 2), ("x", None, "y"), (4, 6, 8, 2), ("x", None, "y"), ("x", "y")),
    ("i,i->", (8,), ("x",), (8,), ("x",), ()),
    ("ij,j->i", (8, 8), ("x", "y"), (8,), (), ("x",)),
]


@pytest.mark.parametrize("case", SPLITS, ids=lambda c: f"{c[0]} {c[2]} {c[4]}")
@pytest.mark.parametrize("jit", [False, True])
def test_sharding_never_changes_values(case, jit):
    text, left, left_spec, right, right_spec, spec = case
    a, b = normal(*left), normal(*right)
    f = lambda x, y: face.einsum(text, x, y)  # noqa: E731
    got = (sw.jit(f) if jit else f)(put(a, *left_spec), put(b, *right_spec))
    assert_einsum(got, text, a, b)
    assert got.sharding.is_equivalent_to(NamedSharding(mesh(), P(*spec)), got.ndim), got.sharding


def test_diagonals_and_sums_of_split_arrays():
    a = normal(8, 8)
    for spec in (("x", "y"), ("x",), (None, "y")):
        x = put(a, *spec)
        for text in ("ii->i", "ii->", "ij->j", "ij->ji"):
            assert_einsum(face.einsum(text, x), text, a)


def explicit(x, *spec):
    axis_types = (sw.sharding.AxisType.Explicit,) * 2
    grid = sw.sharding.Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"), axis_types=axis_types)
    return sw.device_put(x, NamedSharding(grid, P(*spec))), grid


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("spec", [(None, None), ("x", None), ("x", "y")])
def test_out_sharding_decides(spec, jit):
    a, b, c = normal(8, 8), normal(8, 8), normal(8, 8)
    (x, grid), (y, _), (z, _) = explicit(a, "x", "y"), explicit(b, "y", None), explicit(c, None, "y")
    wanted = NamedSharding(grid, P(*spec))
    calls = [
        (lambda *xs: face.einsum("ij,jk->ik", *xs, out_sharding=wanted), (x, y), "ij,jk->ik"),
        (lambda *xs: face.einsum("ij,jk->ki", *xs, out_sharding=wanted), (x, y), "ij,jk->ki"),
        (lambda *xs: face.einsum("ij,jk,kl->il", *xs, out_sharding=wanted), (x, y, z), "ij,jk,kl->il"),
        (lambda *xs: face.einsum("ij->ji", *xs, out_sharding=wanted), (x,), "ij->ji"),
        (lambda *xs: face.dot(*xs, out_sharding=wanted), (x, y), "ij,jk->ik"),
        (lambda *xs: face.matmul(*xs, out_sharding=wanted), (x, y), "ij,jk->ik"),
        (lambda *xs: face.tensordot(*xs, axes=1, out_sharding=wanted), (x, y), "ij,jk->ik"),
    ]
    for f, operands, text in calls:
        got = (sw.jit(f) if jit else f)(*operands)
        assert got.aval.sharding.spec == P(*spec)
        assert_einsum(got, text, *operands)


def test_products_of_split_contracting_dims_ask_for_out_sharding():
    (x, _), (y, _) = explicit(normal(8, 8), "x", "y"), explicit(normal(8, 8), "y", None)
    with pytest.raises(ShardingTypeError, match="out_sharding"):
        face.matmul(x, y)
    assert face.matmul(x, explicit(normal(8, 8), None, None)[0]).aval.sharding.spec == P("x", None)
