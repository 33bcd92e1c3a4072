"""The migration guide's error: a host-local input of 4 rows, split over 8 devices."""
import jax

jax.config.update('jax_num_cpu_devices', 8)

import jax.numpy as jnp
import numpy as np
from jax.experimental.pjit import pjit
from jax.sharding import Mesh, PartitionSpec as P

f = pjit(lambda x: x + 1, in_shardings=P(('x', 'y', 'chips')), out_shardings=None)
with Mesh(np.array(jax.devices()).reshape(2, 2, 2), ('x', 'y', 'chips')):
    f(np.arange(4))
