# Which of equal elements get how much of a tangent depends on the order in which parts are joined.
def slope(function, n, reverse):
    return jax.jit(jax.grad(lambda y: jnp.sum(function(y, axis=0, reverse=reverse) * jnp.arange(n))))(data((n,)))
cases = (192, lax.cummax, False), (192, lax.cummin, True), (21, lax.cummax, True), (21, lax.cummin, False)
result = [slope(function, n, reverse) for n, function, reverse in cases]
