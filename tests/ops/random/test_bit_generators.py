"""Philox against its published results; `rng_bit_generator` against XLA's on a CPU."""

import json

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import P, lax
from shardwise.ops.random.bit_generators import philox_4x32
from tests.ops.random.record_bits import ALGORITHMS, CASES, RECORD, STATE

RECORDED = json.loads(RECORD.read_text())


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


def same(ours, theirs):
    for x, y in zip(ours, theirs, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


# Random123's known answers for philox4x32-10: no bits, all bits, and digits of pi.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_results(counter, key, expected):
    a, b, c, d = (np.array([word], np.uint64) for word in counter)
    assert " ".join(f"{int(x[0]):08x}" for x in philox_4x32((a, b, c, d), key)) == expected


@pytest.mark.parametrize("name", CASES)
def test_bits_and_states_are_xlas(name):
    algorithm, state, shape, dtype = CASES[name]
    with sw.enable_x64(True):
        after, bits = lax.rng_bit_generator(state, shape, dtype, ALGORITHMS[algorithm])
    assert after.dtype == state.dtype and bits.dtype == dtype and bits.shape == shape
    assert [after.tolist(), bits.tolist()] == RECORDED[name]


def test_many_bits_are_xlas(jax):
    """More blocks than the kernel makes at a time."""
    same(lax.rng_bit_generator(STATE, (40000,)), jax.lax.rng_bit_generator(STATE, (40000,)))


def test_the_default_is_philox():
    assert lax.RandomAlgorithm.RNG_DEFAULT == 0
    same(
        lax.rng_bit_generator(STATE, (9,)), lax.rng_bit_generator(STATE, (9,), algorithm=lax.RandomAlgorithm.RNG_PHILOX)
    )


@pytest.mark.parametrize("algorithm", list(lax.RandomAlgorithm))
def test_under_vmap_the_first_state_draws_for_all(jax, algorithm):
    states = np.arange(24, dtype=np.uint32).reshape(2, 4, 3)

    def draws(library):
        def draw(s):
            return library.lax.rng_bit_generator(s, (5,), algorithm=int(algorithm))

        return library.vmap(library.vmap(draw, in_axes=1))(states)

    same(draws(sw), draws(jax))


def test_in_loops_each_draw_goes_on_from_the_last(jax):
    def draws(library):
        def step(s, _):
            return library.lax.rng_bit_generator(s, (6,))

        return library.jit(lambda s: library.lax.scan(step, s, None, length=4))(STATE)

    same(draws(sw), draws(jax))


@pytest.mark.parametrize("algorithm", list(lax.RandomAlgorithm))
def test_devices_hold_parts_of_the_same_bits(algorithm):
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(sw.sharding.AxisType.Auto,) * 2)
    split = sw.NamedSharding(mesh, P("x", "y"))

    def draw(s):
        return lax.rng_bit_generator(s, (8, 6), algorithm=algorithm)[1] >> 1

    made = sw.jit(draw, out_shardings=split)(STATE)
    assert made.sharding == split
    np.testing.assert_array_equal(np.asarray(made), np.asarray(draw(STATE)))


def test_in_shard_map_each_device_draws_from_its_own_state():
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    states = np.arange(16, dtype=np.uint32).reshape(4, 4)

    def body(s):
        after, bits = lax.rng_bit_generator(s[0], (3,))
        return after[None], bits[None]

    after, bits = sw.jit(sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))(states)
    expected = [lax.rng_bit_generator(s, (3,)) for s in states]
    same((after, bits), [jnp.stack(parts) for parts in zip(*expected, strict=True)])


def test_the_program_reads_as_jaxs(jax):
    def text(library):
        return str(library.make_jaxpr(lambda s: library.lax.rng_bit_generator(s, (3,)))(STATE)).split()

    assert text(sw) == text(jax)


def test_mistakes():
    for wrong in (STATE[:3], STATE.astype(np.int32), STATE[None]):
        with pytest.raises(TypeError, match=r"uint32\[4\] or uint64\[2\]"):
            lax.rng_bit_generator(wrong, (2,))
    for dtype in (np.int32, np.float32):
        with pytest.raises(TypeError, match=f"unsupported dtype {dtype.__name__}"):
            lax.rng_bit_generator(STATE, (2,), dtype)
    for shape in ((-1,), (2.0,), -3):
        with pytest.raises(TypeError, match="rng_bit_generator: shape"):
            lax.rng_bit_generator(STATE, shape)
    with pytest.raises(ValueError, match="RandomAlgorithm"):
        lax.rng_bit_generator(STATE, (2,), algorithm=3)
