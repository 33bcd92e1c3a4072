"""What a call costs beyond its arithmetic: jitted programs on almost nothing, single ops, trees of arguments."""

from __future__ import annotations

from registry import MOST, case, normal, placed, row_mesh, rows

FAMILY = "Dispatch"


def _few(jax, np):
    """Eight floats per device, split over all of them."""
    return rows(jax, np, np.ones(8 * jax.device_count(), np.float32))


@case(FAMILY, devices=MOST)
def jit_one(jax, jnp, np):
    """`jit(2 * sin(x) + 1)`, 8 floats per device."""
    x = _few(jax, np)
    f = jax.jit(lambda x: 2 * jnp.sin(x) + 1)
    return lambda: f(x)


@case(FAMILY)
def jit_chain(jax, jnp, np):
    """`jit` of nine ops in a row, 8 floats per device."""
    x = _few(jax, np)

    def chain(x):
        for _ in range(3):
            x = jnp.exp(x) * 0.1 + x
        return x

    f = jax.jit(chain)
    return lambda: f(x)


@case(FAMILY)
def jit_tree(jax, jnp, np):
    """`jit` that scales a dict of 100 arrays."""
    tree = {f"w{i}": placed(jax, np, np.ones(4, np.float32)) for i in range(100)}
    f = jax.jit(lambda tree: {k: v * 2 for k, v in tree.items()})
    return lambda: f(tree)


@case(FAMILY)
def jit_results(jax, jnp, np):
    """`jit` with 20 results."""
    x = _few(jax, np)
    f = jax.jit(lambda x: [x + i for i in range(20)])
    return lambda: f(x)


@case(FAMILY)
def jit_keywords(jax, jnp, np):
    """`jit` with a keyword argument and a Python number."""
    x = _few(jax, np)
    f = jax.jit(lambda x, *, rate: x * rate)
    return lambda: f(x, rate=0.5)


@case(FAMILY)
def jit_static(jax, jnp, np):
    """`jit` with a static argument."""
    x = _few(jax, np)
    f = jax.jit(lambda x, n: x * n, static_argnums=1)
    return lambda: f(x, 3)


@case(FAMILY)
def jit_donated(jax, jnp, np):
    """`jit` with a donated argument."""
    state = [_few(jax, np) + 0]
    f = jax.jit(lambda x: x + 1, donate_argnums=0)

    def call():
        state[0] = f(state[0])
        return state[0]

    return call


@case(FAMILY, devices=MOST)
def op_add(jax, jnp, np):
    """`x + y` outside of jit."""
    x = _few(jax, np)
    return lambda: x + x


@case(FAMILY)
def op_sin(jax, jnp, np):
    """`jnp.sin(x)` outside of jit."""
    x = _few(jax, np)
    return lambda: jnp.sin(x)


@case(FAMILY)
def op_sum(jax, jnp, np):
    """`x.sum()` outside of jit."""
    x = _few(jax, np)
    return lambda: x.sum()


@case(FAMILY)
def op_mean(jax, jnp, np):
    """`jnp.mean(x)` outside of jit."""
    x = _few(jax, np)
    return lambda: jnp.mean(x)


@case(FAMILY)
def op_index(jax, jnp, np):
    """`x[3]` outside of jit."""
    x = _few(jax, np)
    return lambda: x[3]


@case(FAMILY)
def op_at_set(jax, jnp, np):
    """`x.at[3].set(1)` outside of jit."""
    x = _few(jax, np)
    return lambda: x.at[3].set(1)


@case(FAMILY)
def op_tree_map(jax, jnp, np):
    """`p - 0.1 * g` for two dicts of 100 arrays, outside of jit."""
    tree = {f"w{i}": placed(jax, np, np.ones(4, np.float32)) for i in range(100)}
    return lambda: jax.tree.map(lambda p, g: p - 0.1 * g, tree, tree)


@case(FAMILY)
def op_read(jax, jnp, np):
    """`float` of a sum, outside of jit."""
    x = _few(jax, np)
    return lambda: float(x.sum())


@case(FAMILY)
def op_random(jax, jnp, np):
    """`random.split`, then 8 numbers of `random.normal`."""
    key = jax.random.key(0)
    return lambda: jax.random.normal(jax.random.split(key)[0], (8,))


@case(FAMILY)
def op_split(jax, jnp, np):
    """`random.split` outside of jit."""
    key = jax.random.key(0)
    return lambda: jax.random.split(key)


@case(FAMILY)
def op_normal(jax, jnp, np):
    """8 numbers of `random.normal` outside of jit."""
    key = jax.random.key(0)
    return lambda: jax.random.normal(key, (8,))


@case(FAMILY)
def op_max_zeros(jax, jnp, np):
    """`jnp.maximum(x, y)` where all are zero, outside of jit."""
    x = _few(jax, np) * 0
    return lambda: jnp.maximum(x, x)


@case(FAMILY, devices=(1,))
def op_max_4096(jax, jnp, np):
    """`jnp.maximum(x, y)` of 4096 floats, outside of jit."""
    x, y = jnp.asarray(normal(np, 4096)), jnp.asarray(normal(np, 4096)[::-1].copy())
    return lambda: jnp.maximum(x, y)


@case(FAMILY)
def op_clip(jax, jnp, np):
    """`jnp.clip(x, 0, 1)` outside of jit."""
    x = _few(jax, np)
    return lambda: jnp.clip(x, 0, 1)


@case(FAMILY)
def numpy_argument(jax, jnp, np):
    """`jit` of a NumPy array of 8 floats."""
    x, f = np.ones(8, np.float32), jax.jit(lambda x: x + 1)
    return lambda: f(x)


@case(FAMILY)
def to_numpy(jax, jnp, np):
    """`np.asarray` of a new array of 8 floats on one device."""
    x, f = jnp.ones(8), jax.jit(lambda x: x + 1)
    return lambda: np.asarray(f(x))


@case(FAMILY)
def to_numpy_replicated(jax, jnp, np):
    """`np.asarray` of a new array of 8 floats on all devices."""
    x, f = placed(jax, np, np.ones(8, np.float32)), jax.jit(lambda x: x + 1)
    return lambda: np.asarray(f(x))


@case(FAMILY)
def shards(jax, jnp, np):
    """The data of each addressable shard of a new array."""
    x, f = _few(jax, np), jax.jit(lambda x: x + 1)
    return lambda: [shard.data for shard in f(x).addressable_shards]


@case(FAMILY)
def from_callback(jax, jnp, np):
    """`make_array_from_callback` of 8 floats per device."""
    value = np.ones(8 * jax.device_count(), np.float32)
    split = jax.sharding.NamedSharding(row_mesh(jax, np), jax.sharding.PartitionSpec("x"))
    return lambda: jax.make_array_from_callback(value.shape, split, lambda index: value[index])


@case(FAMILY)
def op_list(jax, jnp, np):
    """`jnp.array` of a list of three ints."""
    return lambda: jnp.array([1, 2, 3])


@case(FAMILY)
def put_tree(jax, jnp, np):
    """`device_put` of a dict of 100 host arrays onto all devices."""
    tree = {f"w{i}": np.ones(4, np.float32) for i in range(100)}
    everywhere = jax.sharding.NamedSharding(row_mesh(jax, np), jax.sharding.PartitionSpec())
    return lambda: jax.device_put(tree, everywhere)


@case(FAMILY)
def op_matmul(jax, jnp, np):
    """`x @ y` of 8 x 8 outside of jit, one operand's rows split."""
    y = jnp.ones((8, 8), jnp.float32)
    x = rows(jax, np, np.ones((8 * max(1, jax.device_count() // 8), 8), np.float32))
    return lambda: x @ y


@case(FAMILY, devices=MOST)
def small_all_reduce(jax, jnp, np):
    """`psum` of 8 floats per device in `shard_map`."""
    P = jax.sharding.PartitionSpec
    x = rows(jax, np, np.ones((jax.device_count(), 8), np.float32))
    mesh = row_mesh(jax, np)
    f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    return lambda: f(x)
