# on a mesh, types: updates of mapped values that are split over an axis of size 1.
mesh = mesh_of((1, 2), ("x", "y"), "Explicit")
put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
v, w = put(data((4, 2)), "x"), put(data((4, 3, 3)), "x")
moved = lambda c: c.at[:, 0].set(c[:, -1])
with jax.set_mesh(mesh):
    result = [
        jax.jit(lambda v: jax.vmap(moved)(jnp.stack([v, v])))(v),
        jax.jit(lambda v: jax.vmap(lambda x, n: lax.fori_loop(0, n, lambda i, c: moved(c), x))(jnp.stack([v, v * 2]), jnp.array([1, 2])))(v),
        jax.jit(jax.vmap(jax.grad(lambda y: (y.at[..., 0].set(1.0) ** 2).sum()), in_axes=-1))(w),
        jax.jit(lambda w: jnp.concatenate([w[:1], w]).at[..., 0].set(1.0))(w),
    ]
