# on a mesh, types: a choice is split as its conditions are where it gains dims; a place on a vmap's axis is split as what it meets.
mesh = mesh_of((4, 1), ("x", "y"), "Explicit")
put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
v, m, mx, m3 = put(data((4,)), ("x", "y")), put(data((4, 6))), put(data((4, 6)), "x"), put(data((3, 4, 6)))
b = put(data((3, 4, 6), "bool"), None, "x")
over = lambda g: jax.vmap(g, axis_name="i")
f = lambda v, b, m, mx, m3: [
    *[g(mx[:, :1], m3) for g in (jnp.fmax, jnp.fmin, jnp.heaviside, jnp.floor_divide, jnp.copysign)], *jnp.divmod(m3, mx[:, :1]),
    jnp.select([b], [m], m), jnp.select([b], [m3], m), jnp.select([b], [mx], m), jnp.select([b, m > 0], [mx, m], 0),
    over(lambda r: lax.cond(lax.axis_index("i") > 0, lambda r: -r, lambda r: r, r))(v), over(lambda r: lax.axis_index("i") > 0)(v),
    over(lambda r: jnp.where(lax.axis_index("i") == 1, r, 0))(v), over(lambda r: lax.axis_index("i") + r)(v),
]
with jax.set_mesh(mesh):
    result = jax.jit(f)(v, b, m, mx, m3)
