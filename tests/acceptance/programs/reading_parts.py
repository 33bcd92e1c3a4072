# Slices op by op leave cut dims whole; under jit they stay split where they divide. Axes of size 1 are not named.
mesh = mesh_of((2, 4), ("x", "y"))
a = jax.device_put(data((8, 8)), NamedSharding(mesh, P("x", "y")))
thin = jax.device_put(data((30, 12)), NamedSharding(mesh_of((1, 4), ("x", "y")), P("x")))
cuts = [lambda a: a[:4], lambda a: a[:, 2:6], lambda a: a[1:3, 1:3], lambda a: a[::2], lambda a: a[0], lambda a: a[:, -1],
        lambda a: a[None, ::-1], lambda a: jnp.split(a, 2)]
result = [[f(a), jax.jit(f)(a)] for f in cuts] + [thin.sum(0), thin[3], thin.reshape(-1), thin.T, thin * 2]
result += [jnp.roll(a, 2), jnp.roll(a, (1, 3), (0, 1)), jnp.diff(a), jnp.flip(a), jnp.repeat(a, 2, 0)]
result += [[shard.data for shard in x.addressable_shards] for x in (jax.device_put(1.0, jax.devices()[1]), a[0, 0], a.sum())]
