# Which of equal elements get how much of a tangent depends on the order in which parts are joined.
def slope(function, n, reverse):
    return jax.jit(jax.grad(lambda y: jnp.sum(function(y, axis=0, reverse=reverse) * jnp.arange(n))))(data((n,)))
result = [slope(function, n, reverse) for n in (192, 21) for function in (lax.cummax, lax.cummin) for reverse in (False, True)]
