# Integers that are all zero have no largest product.
zeros, ones = jnp.zeros((5, 24, 8), "int32"), jnp.ones((5, 24, 8), "int32")
result = [
    jax.jit(lambda x, y: jnp.einsum("bqd,bkd->bqk", x, y))(x, y) for x, y in ((zeros, ones), (ones, zeros), (zeros, zeros))
]
