"""What gradients of lookups send: the rows of the updates, or the table's, whichever is less."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

P = PartitionSpec


@pytest.mark.parametrize("words", [64, 8192])
def test_the_gradient_of_an_embedding(words):
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    rng = np.random.default_rng(0)
    table = rng.standard_normal((words, 16)).astype(np.float32)
    tokens, target = (
        rng.integers(0, words, (8, 32)).astype(np.int32),
        rng.standard_normal((8, 32, 16)).astype(np.float32),
    )
    f = sw.grad(lambda table, tokens, target: ((table[tokens] - target) ** 2).sum())
    given = [sw.device_put(a, NamedSharding(mesh, s)) for a, s in [(table, P()), (tokens, P("x")), (target, P("x"))]]
    compiled = sw.jit(f).lower(*given).compile()
    assert_normwise(compiled(*given), f(table, tokens, target), 1e-5)
    sent = sum(t.bytes for t in compiled.runtime_executable().transfers)
    assert sent <= min(2 * table.nbytes, target.nbytes + tokens.nbytes) * 7 // 8
