# The dims behind the axis stay in order.
x = data((6, 2, 5, 3))
functions = (lambda r: r - r[0], lambda r: r.sum(), lambda r: r[:, None] * r[:2])
result = [jax.jit(lambda x: [jnp.apply_along_axis(f, a, x) for f in functions for a in (-4, -3, 2, 3)])(x)]
