# Specs in types: what a slice may cut, what a body with some manual axes sees, results that are None.
mesh = mesh_of((4, 2), ("x", "y"), "Explicit")

def refused(f, *args):
    try:
        f(*args)
    except Exception as error:
        return type(error).__name__

with jax.set_mesh(mesh):
    a = jnp.arange(32.0, out_sharding=P("x")).reshape(8, 4)
    b = jax.sharding.reshard(a, P("x", "y"))
    some = jax.jit(jax.shard_map(lambda a: (print(jax.typeof(a)), jnp.sin(a))[1], out_specs=P("x", None), axis_names={"x"}))
    result = [some(b), jax.jit(lambda a: a[:4])(b), jax.jit(lambda: None)(),
              [refused(jax.jit(f), b) for f in (lambda a: a[0], lambda a: a[:, :1], lambda a: jnp.split(a, 4, 1))]]
