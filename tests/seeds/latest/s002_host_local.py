"""The migration guide's conversions, which on one process change nothing."""
import jax

jax.config.update('jax_num_cpu_devices', 8)

import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ('data', 'model'))
local_inputs = {'image': np.arange(32.0, dtype=np.float32).reshape(8, 4), 'label': np.arange(8)}
in_pspecs = {'image': P('data', 'model'), 'label': P('data')}
out_pspecs = P('data')


def f(batch):
    return batch['image'].sum(axis=1) + batch['label']


with jax.set_mesh(mesh):
    global_inps = multihost_utils.host_local_array_to_global_array(local_inputs, mesh, in_pspecs)
    global_outputs = jax.jit(f, in_shardings=(in_pspecs,), out_shardings=out_pspecs)(global_inps)
    local_outs = multihost_utils.global_array_to_host_local_array(global_outputs, mesh, out_pspecs)
print({name: x.sharding.spec for name, x in global_inps.items()})
print(global_outputs.sharding.spec, local_outs)

# Replicated inputs are global already; mixing them with sharded ones
key = jax.random.PRNGKey(1)
print(jax.jit(lambda k: k, in_shardings=None, out_shardings=None)(key))
local_inp = np.arange(8)
with jax.set_mesh(mesh):
    global_inp = multihost_utils.host_local_array_to_global_array(local_inp, mesh, P('data'))
    global_out = jax.jit(lambda k, x: x + k[1], in_shardings=(P(None), P('data')), out_shardings=P('data'))(key, global_inp)
print(global_out, global_out.sharding.spec)

# FROM_GDA is gone: what is placed already needs no in_shardings
np_array1, np_array2 = np.arange(8), np.ones(8, np.int32)
with jax.set_mesh(mesh):
    array2, array3 = multihost_utils.host_local_array_to_global_array((np_array1, np_array2), mesh, (P('data'), P(None)))
    pjitted_f = jax.jit(lambda a, b, c: a + b * c, out_shardings=P('data'))
    out = pjitted_f(global_out, array2, array3)
print(out, out.sharding.spec)

batch = multihost_utils.host_local_array_to_global_array(np.ones((8, 2), np.float32), mesh, P('data'))
print(batch.shape, batch.sharding == jax.sharding.NamedSharding(mesh, P('data')))
