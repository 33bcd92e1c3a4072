"""The example of `make_array_from_single_device_arrays`, then what its page says about the result."""
import jax

import math
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
import numpy as np

mesh_rows = 2
mesh_cols = jax.device_count() // 2

global_shape = (8, 8)
mesh = Mesh(np.array(jax.devices()).reshape(mesh_rows, mesh_cols), ('x', 'y'))
sharding = jax.sharding.NamedSharding(mesh, P('x', 'y'))
inp_data = np.arange(math.prod(global_shape)).reshape(global_shape)

arrays = [
   jax.device_put(inp_data[index], d)
       for d, index in sharding.addressable_devices_indices_map(global_shape).items()]

arr = jax.make_array_from_single_device_arrays(global_shape, sharding, arrays)
assert arr.shape == (8,8) # arr.shape is (8,8) regardless of jax.device_count()

# "sharded as sharding, with shape equal to shape, and with per-device contents matching arrays"
print(isinstance(arr, jax.Array), arr.shape, arr.dtype, arr.sharding == sharding)
print(arr)
for shard, array in zip(arr.addressable_shards, arrays):
    assert shard.device == array.device, (shard.device, array.device)
    assert np.array_equal(shard.data, array)
    assert np.array_equal(shard.data, inp_data[shard.index])
print(len(arr.addressable_shards) == jax.device_count(), arr.addressable_shards[0].data.shape)

# "list or tuple": any order will do; "dtype: if not provided, the dtype of the first array is used"
again = jax.make_array_from_single_device_arrays(global_shape, sharding, list(reversed(arrays)))
print(np.array_equal(again, arr))


# "len(arrays) must equal len(sharding.addressable_devices) and the shape of each array must be the same"
def refused(*args):
    try:
        jax.make_array_from_single_device_arrays(*args)
    except Exception as error:
        return next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins")
    return 'accepted'


print(refused(global_shape, sharding, arrays[:-1]))
print(refused(global_shape, sharding, {0: arrays}))
print(refused((8, 16), sharding, arrays))
print(refused(global_shape, sharding, [arrays[0]] * len(arrays)))
print(refused(global_shape, sharding, [*arrays[:-1], arrays[-1][:1]]))
