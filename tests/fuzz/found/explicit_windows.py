# on a mesh, types: windows, gathers and scatters where a dim of size 1 is split over an axis of size 1, or an initial value is an array.
mesh = mesh_of((1, 2), ("x", "y"), "Explicit")
put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
one, z, w = put(data((1,)), "x"), put(data((4,)), "x"), put(data((4, 4)), "x", "y")
k, lhs = put(data((1, 2, 3)), None, None, "x"), put(data((2, 2, 8)), "y", None, "x")
j = jnp.array([0, 0, 0])
f = lambda one, z, w, k, lhs: [
    one[j], jnp.take(one, j, mode="fill"), one.at[j].get(mode="clip"), lax.associative_scan(jnp.add, z),
    lax.associative_scan(jnp.add, z[:3], reverse=True), lax.conv_general_dilated(lhs, k, (1,), "VALID"),
    lax.reduce_window(w, jnp.float32(0), lax.add, (1, 2), (1, 1), "SAME"), lax.reduce_window(w, 0.0, lax.add, (1, 2), (1, 1), "SAME"),
    lax.reduce_window(w, jnp.float32(1), lax.add, (1, 2), (1, 2), "VALID"), lax.reduce_window(w, 0 * z[0], lax.add, (2, 3), (1, 1), "SAME"),
    one - jnp.ones((1, 3)), jnp.ones(3) * one, jnp.where(one > 0, jnp.ones((2, 3)), 0), jnp.outer(one, z), jnp.outer(jnp.ones(3), one), jnp.pad(one, 1), jnp.flip(w[:1]), lax.rev(one, (0,)), jnp.rot90(w[:1]),
    lax.bitcast_convert_type(one, "int32"), jax.vmap(jnp.sort)(z[:1, None]), w[:1].reshape(1, 2, 2),
    jnp.repeat(z[:1, None], 3, axis=1), lax.cumsum(z[:1, None], 1), jnp.kron(jnp.ones(2), one),
    lax.reduce_window(z, 0.0, lax.add, (4,), (1,), "VALID"), lax.reduce_window(z, 2.0, lax.mul, (4,), (1,), "VALID"),
]
with jax.set_mesh(mesh):
    result = jax.jit(f)(one, z, w, k, lhs)
