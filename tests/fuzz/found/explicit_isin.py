# on a mesh, types
mesh = mesh_of((2, 2), ("x", "y"), "Explicit")
v = jax.device_put(data((4, 2), "int16", 18), NamedSharding(mesh, P("x")))
with jax.set_mesh(mesh):
    result = [jnp.isin(v, jnp.arange(3)), jnp.isin(v, jnp.arange(3), invert=True), jnp.isin(v, 1), jnp.isin(v, jnp.arange(400))]
