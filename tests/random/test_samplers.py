"""Samples equal JAX's: bits and uniform numbers exactly, others up to the rounding of their formulas.

What JAX draws is recorded in `samples.json` (by `record.py`, since JAX compiles each sampler for seconds); a few cheap
samplers are compared with JAX itself.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise import random
from shardwise.base import config
from tests.random.record import CASES, P, case_id, plain

RECORDED = json.loads((Path(__file__).parent / "samples.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_samples_equal_those_of_jax(case, latest):
    name, args, kwargs, rtol = case
    dtype, shape, values = RECORDED[case_id(case)]
    ours = np.asarray(getattr(random, name)(random.PRNGKey(7), *args, **kwargs))
    assert (ours.dtype.name, list(ours.shape)) == (dtype, shape)
    np.testing.assert_allclose(plain(ours), values, rtol=rtol, atol=1e-6 if rtol else 0)


DRAWN = [  # function, arguments after the key, relative tolerance
    ("bits", ((1001,),), 0),
    ("bits", ((150, 140), "uint8"), 0),  # large enough for a compiled loop
    ("uniform", ((1001,), "float32", 0.3, 4.7), 0),
    ("uniform", ((150, 140), "float32", 0.3, 4.7), 0),
    ("uniform", ((150, 140), "float16", 0.3, 4.7), 0),
    ("uniform", ((150, 140), "bfloat16", 0.3, 4.7), 0),
    ("normal", ((1001,),), 1e-6),
    ("normal", ((150, 140),), 1e-6),
    ("randint", ((1001,), -5, 1000), 0),
    ("permutation", (1001,), 0),
]
DRAW = """
import ast, sys
import jax, numpy as np

drawn = [np.asarray(getattr(jax.random, n)(jax.random.PRNGKey(11), *a)) for n, a in ast.literal_eval(sys.argv[1])]
wide = [x.astype(np.float64) if x.dtype.kind in "fV" else x for x in drawn]
np.savez(sys.argv[2], *wide, dtypes=[x.dtype.name for x in drawn])
"""


@pytest.fixture(scope="module")
def drawn_by_jax(shell, tmp_path_factory):
    """The dtype and values of each row of DRAWN, by code that XLA optimizes: it rounds a product and a sum once."""
    pytest.importorskip("jax")
    path = tmp_path_factory.mktemp("drawn") / "drawn.npz"
    done = shell("-c", DRAW, [(name, args) for name, args, _ in DRAWN], path)
    assert done.returncode == 0, done.stderr
    with np.load(path) as found:
        return [(str(dtype), found[f"arr_{k}"]) for k, dtype in enumerate(found["dtypes"])]


@pytest.mark.parametrize("row", range(len(DRAWN)), ids=lambda row: f"{DRAWN[row][0]}-{DRAWN[row][1]}")
def test_samples_equal_those_of_jax_itself(row, drawn_by_jax):
    name, args, rtol = DRAWN[row]
    dtype, theirs = drawn_by_jax[row]
    ours = np.asarray(getattr(random, name)(random.PRNGKey(11), *args))
    assert ours.dtype == dtype
    # JAX goes by what the processor has, also where the option shardwise_processor hides it from us.
    if "avx512_fp16" in Path("/proc/cpuinfo").read_text() and ours.dtype == np.float16:
        rtol = 2.0**-10  # there JAX rounds a product and a sum once; we do what it does elsewhere
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(plain(ours), theirs.ravel(), rtol=rtol)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_uniform_numbers_are_rounded_after_each_step_on_every_processor(dtype):
    key, low, high = random.PRNGKey(11), np.asarray(0.3, dtype), np.asarray(4.7, dtype)
    unit = np.asarray(random.uniform(key, (150, 140), dtype))
    expected = unit * (high - low) + low
    assert expected.dtype == dtype
    for fused in ("auto", "off"):
        with config.override("shardwise_fused", fused):
            np.testing.assert_array_equal(np.asarray(random.uniform(key, (150, 140), dtype, low, high)), expected)
    np.testing.assert_array_equal(
        np.asarray(random.uniform(key, (5,), dtype, low, high)), random.uniform(key, (5,), dtype) * (high - low) + low
    )


@pytest.mark.parametrize("shape", [(3,), (130, 150)])
def test_mapped_keys_draw_what_each_key_draws(shape):
    keys = random.split(random.PRNGKey(5), (2, 3))
    for sample in (random.bits, random.uniform, random.normal, lambda key, shape: random.gamma(key, 2.0, shape[:1])):
        mapped = np.asarray(sw.vmap(sw.vmap(lambda key: sample(key, shape)))(keys))  # noqa: B023
        alone = [[np.asarray(sample(random.wrap_key_data(k), shape)) for k in row] for row in np.asarray(keys)]
        np.testing.assert_allclose(mapped, alone, rtol=1e-6)


def test_the_same_bits_without_compiled_loops():
    key = random.PRNGKey(5)
    fused = [np.asarray(random.bits(key, (150, 140), dtype)) for dtype in ("uint8", "uint16", "uint32")]
    with config.override("shardwise_fused", "off"):
        plain_bits = [np.asarray(random.bits(key, (150, 140), dtype)) for dtype in ("uint8", "uint16", "uint32")]
    assert all((a == b).all() for a, b in zip(fused, plain_bits, strict=True))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda key: random.bits(key, (), "int32"), ValueError),
        (lambda key: random.uniform(key, (), "int32"), ValueError),
        (lambda key: random.normal(key, (), "int32"), ValueError),
        (lambda key: random.randint(key, (), 0, 3, "float32"), TypeError),
        (lambda key: random.randint(key, (2,), np.arange(3), 7), ValueError),
        (lambda key: random.bernoulli(key, 1), TypeError),
        (lambda key: random.bernoulli(key, mode="middle"), ValueError),
        (lambda key: random.gamma(key, P, (3,)), ValueError),
        (lambda key: random.gumbel(key, mode="lowest"), ValueError),
        (lambda key: random.permutation(key, 1.5), TypeError),
        (lambda key: random.choice(key, 3, 4), TypeError),
        (lambda key: random.choice(key, 3, (4,), replace=False), ValueError),
        (lambda key: random.choice(key, 0, (4,)), ValueError),
        (lambda key: random.choice(key, 3, (4,), p=P), ValueError),
        (lambda key: random.dirichlet(key, 1.0), ValueError),
        (lambda key: random.categorical(key, np.log(P), shape=(8,), replace=False), ValueError),
        (lambda key: random.multivariate_normal(key, P, np.eye(3)), ValueError),
        (lambda key: random.multivariate_normal(key, P, np.eye(7), method="lu"), ValueError),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error):
    with pytest.raises(error):
        call(random.PRNGKey(0))


def test_dtypes_that_are_not_the_sampler_s_own() -> None:
    key = sw.random.key(0)
    assert sw.random.lognormal(key, dtype=sw.numpy.bfloat16).dtype == np.float32  # JAX 0.5.3 promotes with its sigma
    counts = sw.random.multinomial(key, 10, np.array([0.2, 0.3, 0.5], np.float32), dtype=np.int32)
    assert counts.dtype == np.int32 and int(counts.sum()) == 10


def test_a_single_element_bounds_a_scalar_sample():
    key = random.key(0)
    found = random.uniform(key, minval=0.0, maxval=np.array([2.0], np.float32))
    assert found.shape == ()
    assert float(found) == float(random.uniform(key, minval=0.0, maxval=2.0))
