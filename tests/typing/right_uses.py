"""More than 150 uses of the public names that checkers accept: `test_checkers.py` gives them this file, and runs it."""

# fmt: off
# pyright: reportUnusedExpression=false, reportUnnecessaryIsInstance=false

import functools

import numpy as np

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax, nn, random
from shardwise.experimental import mesh_utils, multihost_utils
from shardwise.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

# arrays
x = jnp.arange(6.0).reshape(2, 3)
y = jnp.ones((3, 2), jnp.float32)
key = random.key(0)
shape: tuple[int, ...] = x.shape
count: int = x.size + x.ndim + x.nbytes + x.itemsize
x + y.T
1.0 - x
x @ y
x ** 2
-x
abs(x)
x % 2
x // 2
x > 1
x == x
(x > 1) & (x < 3)
~(x > 1)
x[0]
x[:, 1]
x[None, ..., 0]
x[x > 1]
x.sum(axis=0)
x.mean(0, keepdims=True)
x.max()
x.min(axis=1)
x.std(ddof=1)
x.var()
x.prod()
x.all()
x.any(axis=0)
x.argmax(axis=1)
x.argsort()
x.astype(jnp.bfloat16)
x.transpose(1, 0)
x.swapaxes(0, 1)
x.ravel()
x.flatten()
x.squeeze()
x.clip(0, 1)
x.round(2)
x.cumsum(axis=0)
x.dot(y)
x.repeat(2, axis=0)
x.take(jnp.array([0, 1]))
x.sort(axis=0)
x.trace()
x.conj()
x.real
x.imag
x.mT
x.copy()
x.view(jnp.int32)
x.at[0].set(1.0)
x.at[0, 1].add(2.0, mode="drop")
x.at[0].get(mode="fill", fill_value=0.0)
x.at[1].apply(jnp.sin)
x.sharding
x.devices()
x.addressable_shards[0].data
x.is_fully_replicated
x.block_until_ready()
x.tolist()
float(x[0, 0])
int(x[0, 0])
bool(x[0, 0] == 0)
len(x)
[row for row in x]
np.asarray(x)
x.dtype == jnp.float32

# jnp
jnp.sin(x)
jnp.exp(x) + jnp.log1p(x)
jnp.where(x > 1, x, 0)
jnp.einsum("ij,jk->ik", x, y)
jnp.concatenate([x, x], axis=0)
jnp.stack([x, x])
jnp.linspace(0, 1, 5)
jnp.zeros_like(x)
jnp.full((2,), 3, dtype=jnp.int32)
jnp.eye(3)
jnp.add(x, 1)
jnp.add.reduce(x)
jnp.maximum(x, 0)
jnp.logical_and(x > 0, x < 1)
jnp.split(x, 3, axis=1)
jnp.isnan(x).any()
jnp.asarray([1, 2], dtype="float32")
jnp.take_along_axis(x, jnp.argsort(x), axis=1)
jnp.linalg.norm(x)
jnp.linalg.inv(x @ y + jnp.eye(2))
jnp.linalg.svd(x)
jnp.linalg.qr(x)
jnp.linalg.eigh(x @ x.T)
jnp.linalg.solve(x @ x.T + jnp.eye(2), jnp.ones(2))
jnp.fft.fft(x)
jnp.fft.rfft2(x)
jnp.pi * jnp.e
jnp.inf
jnp.newaxis
jnp.finfo(jnp.float32).eps
jnp.iinfo("int8").max
jnp.result_type(jnp.int8, 1.0)
jnp.vectorize(lambda a: a)(x)
jnp.float32(3.0)
isinstance(x, jax.Array)
isinstance(x, jnp.ndarray)

# lax
lax.add(x, x)
lax.dot_general(x, y, (((1,), (0,)), ((), ())))
lax.scan(lambda c, a: (c + a, c), 0.0, jnp.arange(3.0))
lax.scan(lambda c, a: [c + a, c], 0.0, jnp.arange(3.0))
lax.fori_loop(0, 3, lambda i, c: c + i, 0)
lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)
lax.cond(True, lambda a: a, lambda a: a + 1, x)
lax.switch(1, [lambda a: a, lambda a: a + 1], x)
lax.map(jnp.sin, x)
lax.associative_scan(jnp.add, x)
lax.dynamic_slice(x, (0, 0), (1, 2))
lax.dynamic_update_slice(x, jnp.ones((1, 1)), (0, 0))
lax.top_k(x, 2)
lax.stop_gradient(x)
lax.rsqrt(x + 1)
lax.select(x > 1, x, x)
lax.broadcasted_iota(jnp.int32, (2, 3), 1)
lax.reduce(x, 0.0, lax.add, (0,))
lax.linalg.cholesky(jnp.eye(2))
lax.add_p.name
lax.Precision.HIGHEST

# nn, random, trees
nn.relu(x)
nn.gelu(x, approximate=True)
nn.softmax(x, axis=-1)
nn.log_softmax(x)
nn.one_hot(jnp.array([0, 1]), 3)
nn.silu(x)
nn.initializers.glorot_normal()(key, (2, 3), jnp.float32)
nn.dot_product_attention(jnp.ones((1, 2, 1, 4)), jnp.ones((1, 2, 1, 4)), jnp.ones((1, 2, 1, 4)))
random.normal(key, (2, 3))
random.uniform(key, (2,), minval=-1.0)
random.split(key, 3)
random.fold_in(key, 1)
random.categorical(key, x)
random.permutation(key, 5)
random.bernoulli(key, 0.5, (3,))
random.PRNGKey(0)
jax.tree.map(lambda a: a + 1, {"a": x})
jax.tree.leaves((x, y))
jax.tree_util.tree_structure([x])

# transformations
jax.jit(lambda a: a + 1)(x)
jax.jit(lambda a, n: a * n, static_argnums=1).lower(x, 2).compile().cost_analysis()
jax.grad(lambda a: (a ** 2).sum())(x)
jax.value_and_grad(lambda a: (a ** 2).sum())(x)[0]
jax.vmap(lambda a: a.sum(), in_axes=0)(x)
jax.jacfwd(jnp.sin)(x)
jax.hessian(lambda a: (a ** 3).sum())(x)
jax.jvp(jnp.sin, (x,), (x,))
jax.vjp(jnp.sin, x)[1](x)
jax.vjp(jnp.sum, x)[1](np.float32(1))
jax.linearize(jnp.sin, x)
jax.checkpoint(jnp.sin)(x)
jax.eval_shape(jnp.sin, x).shape
jax.make_jaxpr(jnp.sin)(x).jaxpr
jax.custom_jvp(lambda a: a).defjvp(lambda p, t: (p[0], t[0]))
jax.pure_callback(np.sin, jax.ShapeDtypeStruct((2, 3), jnp.float32), x)
jax.debug.print("{}", 1)
jax.block_until_ready(x)
functools.partial(jax.jit, static_argnames="n")(lambda a, n=1: a)(x)

# sharding
mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
sharding = NamedSharding(mesh, PartitionSpec("x"))
jax.device_put(x, sharding)
jax.device_get(x)
Mesh(mesh_utils.create_device_mesh((2, 2), jax.devices()[:4]), ("a", "b")).axis_names
jax.sharding.SingleDeviceSharding(jax.devices()[0])
jax.shard_map(lambda a: a * 2, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))(x)
jax.process_index() + jax.process_count()
multihost_utils.process_allgather(x)
jax.config.update("jax_enable_x64", False)
jax.typeof(x)
jax.scipy.special.logsumexp(x)
jax.scipy.stats.norm.pdf(x)
jax.profiler.TraceAnnotation("step")
jax.monitoring.record_event("/a/b")
np.from_dlpack(x)
jnp.tri(3, k=jnp.array(1))
jnp.tril(x, k=jnp.array(1))
jnp.triu(x, k=np.int32(1))
