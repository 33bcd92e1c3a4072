# Values of a finished trace are refused wherever they turn up again, and nothing else breaks.
kept = []
mesh = mesh_of((2,), ("x",))

def keep(x):
    kept.append(x)
    return x

jax.jit(keep)(jnp.ones(2))
jax.vmap(keep)(jnp.ones(4))
jax.grad(keep)(1.0)
jax.shard_map(keep, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.ones(4))
first = kept[0]
uses = [lambda value=value: value + 1 for value in kept]
uses += [lambda: jax.jit(lambda y: y)(first), lambda: jax.jit(lambda y: y + first)(1.0), lambda: jax.vmap(lambda y: y + first)(jnp.ones(2)),
         lambda: jax.grad(lambda y: (y * first).sum())(jnp.ones(2)), lambda: np.asarray(first), lambda: jnp.where(True, first, 0)]
for use in uses:
    try:
        use()
    except Exception as error:
        print(type(error).__name__)
result = jax.jit(lambda y: y * 2)(jnp.ones(2))
