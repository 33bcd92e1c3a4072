"""In the seed era, what pmap gives is data to everything else: whole, and free to go where the other operands are."""

from __future__ import annotations

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec, PmapSharding, SingleDeviceSharding


def test_ops_on_results_of_pmap_follow_the_other_operands():
    rows = sw.pmap(lambda x: x * 2)(jnp.arange(8.0))
    assert isinstance(rows.sharding, PmapSharding)
    for y in (rows + 1, sw.jit(jnp.sum)(rows), rows[0], rows.reshape(2, 4)):
        assert isinstance(y.sharding, SingleDeviceSharding) and not y.committed
    far = sw.device_put(np.ones(8, np.float32), sw.devices()[2])
    assert (rows + far).sharding.device_set == {sw.devices()[2]}
    split = NamedSharding(Mesh(np.array(sw.devices()), "x"), PartitionSpec("x"))
    assert (rows + sw.device_put(far, split)).sharding == split
    np.testing.assert_array_equal(rows + far, np.arange(8.0) * 2 + 1)
