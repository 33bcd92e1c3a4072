"""Keys of threefry4x32, philox2x32 and philox4x32: recorded words of JAX, known answers of the ciphers, and what `vmap` makes."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import random
from shardwise.ops.random.counter_ciphers import _GENERATORS
from tests.ops.random.record_ciphers import IMPLS, RECORD, drawn

RECORDED = json.loads(RECORD.read_text())


@pytest.mark.parametrize("impl", IMPLS)
def test_keys_and_bits_are_those_of_jax(impl):
    assert drawn(sw, impl) == RECORDED[impl]


# Words of a counter and a key, all of them 0 or all of them set, as Random123 publishes them.
KNOWN = {
    ("philox2x32", 0): [0xFF1DAE59, 0x6CD10DF2],
    ("philox2x32", 0xFFFFFFFF): [0x2C3F628B, 0xAB4FD7AD],
    ("philox4x32", 0): [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    ("philox4x32", 0xFFFFFFFF): [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    ("threefry4x32", 0): [0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8],
    ("threefry4x32", 0xFFFFFFFF): [0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732],
}


@pytest.mark.parametrize(("impl", "word"), KNOWN)
def test_known_answers(impl, word):
    dtype = random.key_dtype(impl)
    generator = _GENERATORS[dtype]
    given = [sw.numpy.uint32(word)] * 4
    made = generator.cipher(given[: dtype.words], given[: generator.block])
    assert [int(w) for w in made] == KNOWN[impl, word]


@pytest.mark.parametrize("impl", IMPLS)
def test_mapped_keys_draw_as_each_does_alone(impl):
    keys = random.split(random.key(7, impl=impl), 3)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda k: random.bits(k, (2,)),
        lambda k: random.key_data(random.split(k)),
        lambda k: random.uniform(k),
    )
    for call in calls:
        expected = np.stack([np.asarray(call(k)) for k in keys])
        np.testing.assert_array_equal(np.asarray(sw.vmap(call)(keys)), expected)
    folded = sw.vmap(random.fold_in)(keys, np.arange(3))
    assert all((folded[i] == random.fold_in(keys[i], i)).item() for i in range(3))
