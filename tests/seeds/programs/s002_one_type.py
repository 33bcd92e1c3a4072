"""The migration guide on types: `jax.Array` covers the three old ones, and three tests tell them apart."""
import jax

jax.config.update('jax_num_cpu_devices', 8)

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('x', 'y'))


def kind(x):
    if not x.is_fully_addressable:
        return 'like a GDA'
    return 'like a DA' if len(x.sharding.device_set) == 1 else 'like a SDA'


plain = jnp.arange(8)
sharded = jax.device_put(plain, NamedSharding(mesh, P('x')))
one_device = jax.device_put(plain, NamedSharding(Mesh(np.array(jax.devices()[:1]), ('x',)), P('x')))

for x in (plain, sharded, one_device, plain + sharded, jax.jit(jnp.cos)(sharded)):
    print(isinstance(x, jax.Array), isinstance(x, jnp.ndarray), kind(x))


@jax.jit
def traced(x):
    print('traced:', isinstance(x, jax.Array))
    return x


traced(plain)
print('numpy:', isinstance(np.arange(8), jax.Array))

# local_shards and local_data became addressable_shards and addressable_data
print(sharded.addressable_data(2), [shard.index for shard in sharded.addressable_shards[:4]])
print([shard.replica_id for shard in sharded.addressable_shards])
print(any(x is sharded for x in jax.live_arrays()))

# GlobalDeviceArray.from_callback(shape, mesh, pspec, callback) and the raw constructor
data = np.arange(16).reshape(8, 2)
built = jax.make_array_from_callback(data.shape, jax.sharding.NamedSharding(mesh, P('x', 'y')), lambda index: data[index])
buffers = [shard.data for shard in built.addressable_shards]
raw = jax.make_array_from_single_device_arrays(data.shape, jax.sharding.NamedSharding(mesh, P('x', 'y')), buffers)
print(np.array_equal(built, data), np.array_equal(raw, data), raw.sharding == built.sharding)

# An array to give to pmap
pmap_sharding = jax.sharding.PmapSharding.default((8, 2))
rows = jax.make_array_from_single_device_arrays(
    (8, 2), pmap_sharding, [jax.device_put(data[i : i + 1], d) for i, d in enumerate(jax.devices())])
print(jax.pmap(lambda row: row.sum())(rows))
