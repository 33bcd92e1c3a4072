"""Keys of other generators than threefry2x32, everywhere that its keys may be; of rbg, the words and bits of JAX on a CPU.

What the other generators draw is compared in `tests/ops/random/test_counter_ciphers.py`.
"""

import pickle

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import P, random

WIDE = ["rbg", "unsafe_rbg"]
IMPLS = [*WIDE, "threefry4x32", "philox2x32", "philox4x32"]


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


def plain(library, x):
    """What `x` holds, keys as their words."""
    if library.numpy.issubdtype(x.dtype, library.dtypes.prng_key):
        return np.asarray(library.random.key_data(x))
    return np.asarray(x)


def both(jax, impl, call):
    ours, theirs = (call(library, library.random.key(7, impl=impl)) for library in (sw, jax))
    assert str(ours.dtype) == str(theirs.dtype) and ours.shape == theirs.shape
    np.testing.assert_array_equal(plain(sw, ours), plain(jax, theirs))


CALLS = {
    "key": lambda lib, key: key,
    "split": lambda lib, key: lib.random.split(key, (2, 3)),
    "fold_in": lambda lib, key: lib.random.fold_in(key, 3),
    "bits of 8": lambda lib, key: lib.random.bits(key, (5,), "uint8"),
    "uniform": lambda lib, key: lib.random.uniform(key, (3, 4)),
    "randint": lambda lib, key: lib.random.randint(key, (5,), 0, 10),
    "permutation": lambda lib, key: lib.random.permutation(key, 9),
    "bernoulli": lambda lib, key: lib.random.bernoulli(key, 0.4, (7,)),
    "choice": lambda lib, key: lib.random.choice(key, 9, (3,)),
    "vmap of split": lambda lib, key: lib.vmap(lambda k: lib.random.split(k, 2))(lib.random.split(key, 4)),
    "vmap of fold_in": lambda lib, key: lib.vmap(lib.random.fold_in)(lib.random.split(key, 4), np.arange(4)),
    "vmap over data": lambda lib, key: lib.vmap(lambda n: lib.random.fold_in(key, n))(np.arange(4)),
    "vmap of bits": lambda lib, key: lib.vmap(lib.vmap(lambda k: lib.random.bits(k, (2,))))(
        lib.random.split(key, (3, 2))
    ),
    "equal": lambda lib, key: lib.random.split(key, 3) == lib.random.split(key, 3)[::-1],
    "unequal": lambda lib, key: lib.jit(lambda a, b: a != b)(*lib.random.split(key, (2, 3))[:, None]),
    "where": lambda lib, key: lib.numpy.where(np.arange(4) > 1, lib.random.split(key, 4), key),
    "set": lambda lib, key: lib.random.split(key, 4).at[1].set(key),
    "take": lambda lib, key: lib.jit(lambda ks, i: ks[i])(lib.random.split(key, 4), 2),
    "stack": lambda lib, key: lib.jit(lambda k: lib.numpy.stack([k, lib.random.clone(k)]))(key),
    "scan": lambda lib, key: lib.jit(
        lambda k: lib.lax.scan(lambda k, _: (lib.random.split(k)[0], lib.random.uniform(k, (2,))), k, None, length=3)[1]
    )(key),
    "loop": lambda lib, key: lib.jit(lambda k: lib.lax.fori_loop(0, 3, lambda i, k: lib.random.fold_in(k, i), k))(key),
}


# Both draw alike; what they make of keys differs.
DERIVES = [
    "key",
    "split",
    "fold_in",
    "permutation",
    "vmap of split",
    "vmap of fold_in",
    "vmap over data",
    "scan",
    "loop",
]


@pytest.mark.parametrize(
    ("impl", "name"), [("rbg", name) for name in CALLS] + [("unsafe_rbg", name) for name in DERIVES]
)
def test_as_in_jax(jax, name, impl):
    both(jax, impl, CALLS[name])


@pytest.mark.parametrize("impl", IMPLS)
def test_names_and_forms(impl):
    key = random.key(3, impl=impl)
    assert random.key_impl(key) == impl and key.dtype == random.key_dtype(impl) != random.key_dtype()
    words = random.key_data(key)
    assert words.shape == (random.key_dtype(impl).words,) and (random.wrap_key_data(words, impl=impl) == key).item()
    restored = pickle.loads(pickle.dumps(random.split(key, 2)))
    assert (restored == random.split(key, 2)).all()
    with sw.default_prng_impl(impl):
        raw = random.PRNGKey(3)
        assert (np.asarray(raw) == np.asarray(words)).all() and random.key_impl(raw) == impl
        assert (np.asarray(random.split(raw)) == np.asarray(random.key_data(random.split(key)))).all()
        assert (np.asarray(random.normal(raw, (5,))) == np.asarray(random.normal(key, (5,)))).all()
        with pytest.raises(TypeError, match=rf"ends in \({len(words)},\)"):
            random.split(np.zeros(3, np.uint32))


@pytest.mark.parametrize("impl", IMPLS)
def test_devices_hold_parts_of_the_same_bits(impl):
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(sw.sharding.AxisType.Auto,) * 2)
    key = random.key(7, impl=impl)
    keys = random.split(key, 8)
    split = sw.device_put(keys, sw.NamedSharding(mesh, P("x")))

    def draw(key):
        return random.uniform(key, (8, 6)) * 2

    made = sw.jit(draw, out_shardings=sw.NamedSharding(mesh, P("x", "y")))(key)
    np.testing.assert_array_equal(np.asarray(made), np.asarray(sw.jit(draw)(key)))
    for call in (
        lambda ks: sw.vmap(lambda k: random.bits(k, (6,)))(ks),
        lambda ks: sw.vmap(random.split)(ks),
        lambda ks: ks[::-1],
    ):
        np.testing.assert_array_equal(plain(sw, sw.jit(call)(split)), plain(sw, call(keys)))


@pytest.mark.parametrize("impl", IMPLS)
def test_in_shard_map_each_device_draws_with_its_own_key(impl):
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    keys = random.split(random.key(7, impl=impl), 4)

    def body(keys):
        return random.bits(random.fold_in(keys[0], sw.lax.axis_index("x")), (1, 3))

    made = sw.jit(sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(keys)
    expected = jnp.stack([random.bits(random.fold_in(keys[i], i), (3,)) for i in range(4)])
    np.testing.assert_array_equal(np.asarray(made), np.asarray(expected))


@pytest.mark.parametrize("impl", IMPLS)
def test_reuse_is_found(impl):
    with sw.debug_key_reuse(True), pytest.raises(sw.errors.KeyReuseError):
        key = random.key(0, impl=impl)
        random.uniform(key)
        random.uniform(key)


@pytest.mark.parametrize("impl", ["threefry2x32", *IMPLS])
def test_key_types_from_elsewhere_are_the_same(impl):
    here = random.key_dtype(impl)
    elsewhere = pickle.loads(pickle.dumps(here))
    read = sw.make_jaxpr(random.key_data)
    # The first array type of a shape is the one that all later ones share.
    shown = [str(read(sw.ShapeDtypeStruct((7, 13, n), dtype))) for n, dtype in ((5, elsewhere), (6, here))]
    assert shown[0].replace("5", "6") == shown[1]


def test_what_is_refused_by_name():
    key = random.key(0, impl="rbg")
    with pytest.raises(NotImplementedError, match=r"poisson.*Use a key of threefry2x32"):
        random.poisson(key, 2.0)
    with pytest.raises(NotImplementedError, match=r"gamma.*key<phx4>"):
        random.gamma(random.key(0, impl="philox4x32"), 2.0)


GAMMAS = {
    "gamma": lambda lib, key: lib.random.gamma(key, np.float32([0.3, 1.0, 5.0])),  # type: ignore[arg-type]
    "loggamma": lambda lib, key: lib.random.loggamma(key, 0.2, (4,)),
    "beta": lambda lib, key: lib.random.beta(key, 2.0, 3.0, (2,)),
    "dirichlet": lambda lib, key: lib.random.dirichlet(key, np.ones(3, np.float32), (2,)),
    "t": lambda lib, key: lib.random.t(key, 3.0, (3,)),
    "ball": lambda lib, key: lib.random.ball(key, 3),
    "f": lambda lib, key: lib.random.f(key, 2.0, 3.0, (2,)),
    "bfloat16": lambda lib, key: lib.random.gamma(key, 2.0, (4,), "bfloat16").astype("float32"),
    "jit": lambda lib, key: lib.jit(lambda k, a: lib.random.gamma(k, a, (3,)))(key, 2.0),
    "vmap over keys": lambda lib, key: lib.vmap(lambda k: lib.random.gamma(k, 2.0, (2,)))(lib.random.split(key, 3)),
    "slopes": lambda lib, key: lib.grad(lambda a: lib.random.gamma(key, a, (3,)).sum())(1.5),
}


@pytest.mark.parametrize(("impl", "name"), [(WIDE[i % len(WIDE)], name) for i, name in enumerate(GAMMAS)])
def test_gamma_numbers_are_those_of_jax(jax, impl, name):
    ours, theirs = (np.asarray(GAMMAS[name](lib, lib.random.key(7, impl=impl))) for lib in (sw, jax))
    # Some roundings of float32: logarithms and square roots are not the same to the last bit.
    np.testing.assert_allclose(ours, theirs, rtol=5e-6)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "philox2x32"])
def test_keys_beyond_the_end_have_all_bits_set(impl):
    keys = random.split(random.key(0, impl=impl), 4)
    beyond = lambda k, **how: random.key_data(k.at[9].get(mode="fill", **how))  # noqa: E731
    for f in (beyond, sw.jit(beyond)):
        assert (f(keys) == np.uint32(0xFFFFFFFF)).all()
    assert (beyond(keys, fill_value=3) == 3).all()
    pairs = random.key_data(keys.reshape(2, 2).at[jnp.array([1, 5])].get(mode="fill"))
    assert (pairs[0] == random.key_data(keys)[2:]).all() and (pairs[1] == np.uint32(0xFFFFFFFF)).all()
