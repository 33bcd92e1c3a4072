"""The example of `pjit`: a convolution, partitioned over any number of devices."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jax.experimental.pjit import pjit

x = jnp.arange(8, dtype=jnp.float32)
f = pjit(lambda x: jax.numpy.convolve(x, jnp.asarray([0.5, 1.0, 0.5]), 'same'),
        in_shardings=None, out_shardings=PartitionSpec('devices'))
with Mesh(np.array(jax.devices()), ('devices',)):
  print(f(x))
