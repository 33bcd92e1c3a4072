"""The cells of the notebook in the spelling of JAX 0.10; what a cell displays is printed."""

from pprint import pprint

# In [1]:
import jax

jax.config.update('jax_num_cpu_devices', 12)

# In [2]:
pprint(jax.devices())

# In [3]:
import numpy as np
import jax.numpy as jnp

arr = jnp.arange(32.0).reshape(4, 8)
pprint(arr.devices())

# In [4]:
pprint(arr.sharding)

# In [5]:
# pip install rich

jax.debug.visualize_array_sharding(arr)

# In [6]:
from jax.sharding import AxisType, PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2) # x和y是两个维度的名字
sharding = jax.sharding.NamedSharding(mesh, P('x', 'y'))
print(sharding)


# In [7]:
arr_sharded = jax.device_put(arr, sharding)
# 注意 这儿的 sharding = jax.sharding.NamedSharding(mesh, P('x', 'y'))

print(arr_sharded)
jax.debug.visualize_array_sharding(arr_sharded)

# In [8]:
@jax.jit
def f_elementwise(x):
  return 2 * jnp.sin(x) + 1

result = f_elementwise(arr_sharded)

print("shardings match:", result.sharding == arr_sharded.sharding)

# In [9]:
print(result)
jax.debug.visualize_array_sharding(result)

# In [10]:
@jax.jit
def f_contract(x):
  return x.sum(axis=0)

result = f_contract(arr_sharded)
jax.debug.visualize_array_sharding(result)
print(result)

# In [11]:
some_array = np.arange(8)
print(f"JAX-level type of some_array: {jax.typeof(some_array)}")

# In [12]:
@jax.jit
def foo(x):
  print(f"JAX-level type of x during tracing: {jax.typeof(x)}")
  return x + x

pprint(foo(some_array))

# In [13]:
from jax.sharding import AxisType

mesh = jax.make_mesh((2, 4), ("X", "Y"),
                     axis_types=(AxisType.Explicit, AxisType.Explicit))
# 这里 AxisType.Explicit 是指我们在 shard 的时候，会指定怎么进行分配

# In [14]:
replicated_array = np.arange(8).reshape(4, 2)
sharded_array = jax.device_put(replicated_array, jax.NamedSharding(mesh, P("X", None)))

print(f"replicated_array type: {jax.typeof(replicated_array)}")
print(f"sharded_array type: {jax.typeof(sharded_array)}")
print(sharded_array)

# In [15]:
jax.debug.visualize_array_sharding(sharded_array)

# In [16]:
arg0 = jax.device_put(np.arange(4).reshape(4, 1),
                      jax.NamedSharding(mesh, P("X", None)))
arg1 = jax.device_put(np.arange(8).reshape(1, 8),
                      jax.NamedSharding(mesh, P(None, "Y")))

@jax.jit
def add_arrays(x, y):
  ans = x + y # 这儿会自动广播
  print(f"x sharding: {jax.typeof(x)}")
  print(f"y sharding: {jax.typeof(y)}")
  print(f"ans sharding: {jax.typeof(ans)}")
  return ans

with jax.set_mesh(mesh):
  temp = add_arrays(arg0, arg1)
  jax.debug.visualize_array_sharding(temp)

# In [17]:
add_arrays(arg0, arg1)

print(f"整个的求和结果是 {temp}")

print("试着查看 CPU0 上的数据")
for s in temp.addressable_shards:
    if s.device.id == 0:  # 只看 CPU 0
        print(f"Data on CPU 0:\n{s.data}")

# In [18]:
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P
from jax import shard_map

# Assume f_elementwise is a function you have defined, for example:
def f_elementwise(x):
  return x * 2

mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))

f_elementwise_sharded = shard_map(
    f_elementwise,
    mesh=mesh,
    in_specs=P('x'),
    out_specs=P('x'))

arr = jnp.arange(32)
f_elementwise_sharded(arr)
jax.debug.visualize_array_sharding(arr)

# In [19]:
x = jnp.arange(32)
print(f"global shape: {x.shape=}")

def f(x):
  print(f"device local shape: {x.shape=}")
  return x * 2

y = shard_map(f, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(x)
jax.debug.visualize_array_sharding(y)

# In [20]:
def f(x):
  # print(f"device local shape: {x.shape=}")
  sum_in_shard = x.sum(keepdims=True) # 如果没有这个 keepdims=True，sum_in_shard 就是一个标量 程序会报错
  #print(f"sum_in_shard shape: {sum_in_shard.shape=}")
  return sum_in_shard
  #return jnp.sum(x, keepdims=True)

#print(x)
x_sharded = jax.device_put(x, jax.NamedSharding(mesh, P("x",))
                           )
for s in x_sharded.addressable_shards:
    print(f"Data on {s.device}: {s.data}")

jax.debug.visualize_array_sharding(x_sharded)
z = shard_map(f, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(x)
print(z)
jax.debug.visualize_array_sharding(z)

# In [21]:
def g(x):
  sum_in_shard = x.sum(keepdims=True) # 如果没有这个 keepdims=True，sum_in_shard 就是一个标量 这个地方不会报错、
  #print(f"sum_in_shard shape: {sum_in_shard.shape=}")
  return jax.lax.psum(sum_in_shard, 'x')

print(shard_map(g, mesh=mesh, in_specs=P('x'), out_specs=P())(x))
# 注意，要跨 partition 进行计算，需要使用 jax.lax.psum，而且 out_specs 也要设置为 P() 这样才是只有一个输出数字嘛
# 如果设置为 P('x')，尝试下面的代码
print(shard_map(g, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(x))

# In [22]:
@jax.jit
def layer(x, weights, bias):
  return jax.nn.sigmoid(x @ weights + bias)

# In [23]:
import numpy as np
rng = np.random.default_rng(0)

x = rng.normal(size=(32,))
weights = rng.normal(size=(32, 4))
bias = rng.normal(size=(4,))

x = jnp.array(x)
weights = jnp.array(weights)
bias = jnp.array(bias)

pprint(layer(x, weights, bias))

# In [24]:
mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
x_sharded = jax.device_put(x, jax.NamedSharding(mesh, P('x')))
weights_sharded = jax.device_put(weights, jax.NamedSharding(mesh, P()))

print(layer(x_sharded, weights_sharded, bias))

jax.debug.visualize_array_sharding(x_sharded)
jax.debug.visualize_array_sharding(weights_sharded)

# In [25]:
explicit_mesh = jax.make_mesh((8,), ('X',), axis_types=(AxisType.Explicit,))

x_sharded = jax.device_put(x, jax.NamedSharding(explicit_mesh, P('X')))
jax.debug.visualize_array_sharding(x_sharded)
weights_sharded = jax.device_put(weights, jax.NamedSharding(explicit_mesh, P()))

@jax.jit
def layer_auto(x, weights, bias):
  print(f"x sharding: {jax.typeof(x)}")
  print(f"weights sharding: {jax.typeof(weights)}")
  print(f"bias sharding: {jax.typeof(bias)}")
  out = layer(x, weights, bias)
  print(f"out sharding: {jax.typeof(out)}")
  return out

with jax.set_mesh(explicit_mesh):
  layer_auto(x_sharded, weights_sharded, bias)

# In [26]:
z = jnp.arange(32)
explicit_mesh = jax.make_mesh((8,), ('X',), axis_types=(AxisType.Explicit,))
z_sharded = jax.device_put(z, jax.NamedSharding(explicit_mesh, P('X')))
print(f"z sharding: {jax.typeof(z_sharded)}")

# In [30]:
from functools import partial

@jax.jit
@partial(shard_map, mesh=mesh,
         in_specs=(P('x'), P('x', None), P(None)),
         out_specs=P(None))
def layer_sharded(x, weights, bias):
  print(f"x sharding: {jax.typeof(x)}")
  print(f"weights sharding: {jax.typeof(weights)}")
  print(f"bias sharding: {jax.typeof(bias)}")
  return jax.nn.sigmoid(jax.lax.psum(x @ weights, 'x') + bias)

print(layer_sharded(x, weights, bias))

print("注意到 x 的长度是32，而 mesh 的长度是8，所以 x 会被分成8份，每份的长度是4")
