"""How JAX 0.5.3 prints and names things: the default dialect's forms, beyond those that the documents show."""
import jax

jax.config.update('jax_num_cpu_devices', 8)

import jax.numpy as jnp
import numpy as np
from jax.experimental.shard import auto_axes, reshard
from jax.experimental.shard_map import shard_map
from jax.sharding import (AxisType, GSPMDSharding, Mesh, NamedSharding, PartitionSpec as P, PmapSharding,
                          PositionalSharding, SingleDeviceSharding)

mesh = jax.make_mesh((2, 4), ('x', 'y'))
explicit = jax.make_mesh((2, 4), ('x', 'y'), axis_types=(AxisType.Explicit,) * 2)
data = np.arange(64, dtype=np.float32).reshape(8, 8)
a = jax.device_put(data, NamedSharding(mesh, P('x', 'y')))
e = jax.device_put(data, NamedSharding(explicit, P('x', 'y')))
v = jnp.arange(8.0)


def show(*values):
    for value in values:
        print(repr(value), '|', value)


def refused(f, *args):
    try:
        f(*args)
    except Exception as error:
        return next(base.__name__ for base in type(error).__mro__ if base.__module__ == 'builtins')
    return 'accepted'


print('# devices and meshes')
device = jax.devices()[3]
show(device, mesh, mesh.abstract_mesh, mesh.axis_types, AxisType.Auto)
print(device.id, device.platform, device.device_kind, device.process_index, device.default_memory().kind)
print([memory.kind for memory in device.addressable_memories()], mesh.shape, mesh.size, mesh.axis_names, mesh.empty)

print('# specs')
show(P(), P('x'), P('x', None), P(('x', 'y'), None), P(None, 'y'))
print(P('x') == ('x',), P('x') + ('y',), P('x', None) == P('x'), hash(P('x')) == hash(('x',)), isinstance(P(), tuple))

print('# shardings')
show(NamedSharding(mesh, P('x')), SingleDeviceSharding(device), PositionalSharding(jax.devices()).reshape(2, 4),
     PositionalSharding(jax.devices()).reshape(2, 4).replicate(0), GSPMDSharding.get_replicated(jax.devices()),
     PmapSharding.default((8, 3)))
print(NamedSharding(mesh, P('x')).with_memory_kind('unpinned_host').memory_kind, a.sharding.shard_shape((8, 8)))
print(NamedSharding(mesh, P('x')).is_equivalent_to(PositionalSharding(jax.devices()).reshape(2, 4).replicate(1), 2))
p = jax.device_put(data, PositionalSharding(jax.devices()).reshape(2, 4))
print((p + 1).sharding, np.array_equal(p, data))

print('# arrays')
show(v, jnp.asarray(2.0), jnp.float32(1.5), jnp.zeros((0, 3)), jnp.array([True]), a[0, :2], jnp.arange(3, dtype='bfloat16'))
print(a.addressable_shards[5])
print(a.sharding.spec, (a * 2).sharding.spec, a.sum(0).sharding.spec, a.sum().sharding.spec, (a @ a.T).sharding.spec)

print('# types')
print(jax.typeof(v), jax.typeof(2.0), jax.typeof(jnp.asarray(2)), jax.typeof(e), jax.typeof(a), jax.typeof(np.ones(3)))
print(repr(jax.typeof(e)), jax.typeof(e).sharding.spec)
jax.jit(lambda x: print(repr(x), jax.typeof(x)))(v)


@jax.jit
def typed(x, row):
    for y in (x * 2, x + row, x.sum(0), x.T, x.reshape(8, 8, 1), x[:, None], jnp.sin(x).astype('int32'), x.max()):
        print(jax.typeof(y))
    return x + row


with jax.sharding.use_mesh(explicit):
    print(typed(e, jax.device_put(v, NamedSharding(explicit, P('y')))).sharding)
    print(jax.typeof(reshard(e, P(None, 'y'))), jax.typeof(jnp.ones((8, 2))), jnp.ones(3).sharding)
    print(jax.typeof(auto_axes(lambda x: x @ x.T, out_shardings=P('x', None))(e)))
print(shard_map(lambda x: print(jax.typeof(x)) or x, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(v).sharding)

print('# contexts')
print(jax.sharding.set_mesh(mesh), jnp.ones(2).sharding)
print(jax.sharding.set_mesh(explicit) == mesh)

print('# errors')
print(refused(jax.jit(lambda x: x + x.T), e), refused(jax.jit(lambda x: x @ x), e),
      refused(jax.jit(lambda x: x.reshape(2, 32)), e), refused(NamedSharding, mesh, P('z')), refused(NamedSharding, mesh, None),
      refused(jax.device_put, np.ones(3), NamedSharding(mesh, P('x'))), refused(lambda: jax.devices('gpu')),
      refused(jax.config.update, 'jax_num_cpu_devices', 3), refused(lambda: v.block_until_ready),
      refused(jax.jit(lambda x: bool(x)), 1), refused(jax.jit(lambda x: x, static_argnums=0), [1]),
      refused(shard_map(lambda x: x, mesh=mesh, in_specs=P('x'), out_specs=P()), v), refused(lambda: v.at[0] + 1))
