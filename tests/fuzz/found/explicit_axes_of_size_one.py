# on a mesh, types: a dim of size 1 that is split over an axis of size 1 stays so.
mesh = mesh_of((1, 2), ("x", "y"), "Explicit")
put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
a, n, w, z = put(data((1, 4)), "x", "y"), put(data((1, 4)), None, "y"), put(data((4, 4)), "x", "y"), put(data((4,)), "x")
with jax.set_mesh(mesh):
    result = [
        a * 2, 2 + a, jnp.cos(a), a + a, a + n, n + a, a + w, a.T, a.sum(1), a.sum(0), a.sum(1, keepdims=True), a[0], a[None],
        a.reshape(4), a.reshape(1, 1, 4), a.reshape(4, 1), jnp.outer(a[0], z), jnp.broadcast_to(a, (3, 4)), jnp.broadcast_to(z, (3, 4)),
        jax.vmap(lambda r: r * 2)(a), jax.grad(lambda a: (a**2).sum())(a), lax.squeeze(a, (0,)), jnp.where(a > 0, a, 0), w.max(1),
        jax.jit(lambda a: jnp.log(2 + jnp.cos(a)).T)(a),
    ]

# One device holds all of a split dim: eager indexing cuts it, and its type stays split.
one = jax.device_put(data((6, 4)), NamedSharding(mesh_of((1, 1), ("x", "y"), "Explicit"), P("x", "y")))
result += [one[3], one[3, 1], one[1:3], one[::2], one[:, 0], one[-1], one[..., None, 1], jnp.where(one > 0, one, one[0])]
