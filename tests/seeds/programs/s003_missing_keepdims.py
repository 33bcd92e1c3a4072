"""What the notebook's remarks in cells 20 and 21 say happens without keepdims."""
import jax

jax.config.update('jax_num_cpu_devices', 8)

import jax.numpy as jnp
from jax.experimental.shard_map import shard_map
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((8,), ('x',))
x = jnp.arange(32)


def g(x):
    return jax.lax.psum(x.sum(), 'x')


def f(x):
    return x.sum()


print(shard_map(g, mesh=mesh, in_specs=P('x'), out_specs=P())(x))
shard_map(f, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(x)
