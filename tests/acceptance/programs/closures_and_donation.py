# Captured arrays are constants of a jitted function, wherever they lie; which donated buffers are taken.
mesh = mesh_of((4,), ("x",))
def named(*spec): return NamedSharding(mesh, P(*spec))
other = NamedSharding(Mesh(np.array(jax.devices()[4:]), ("x",)), P("x"))
c, far = jax.device_put(jnp.arange(8.0), named("x")), jax.device_put(jnp.arange(8.0), jax.devices()[3])
there = jax.device_put(jnp.arange(8.0), other)
result = [jax.jit(lambda: c * 2)(), jax.jit(lambda x: c * x)(2.0), jax.jit(lambda x: far * x)(c), jax.jit(lambda x: x + c)(there),
          jax.jit(lambda x: (x + c, c))(far), jax.jit(lambda c: (c + there, there * 2))(c),
          jax.jit(lambda a, c: (a * 2, a + c))(np.ones(8, "float32"), c)]

def fate(f, x, **options):
    jax.jit(f, donate_argnums=0, **options)(x)
    return x.is_deleted()

def whole(): return jax.device_put(jnp.ones(8), named())
def split(): return jax.device_put(jnp.ones(8), named("x"))
result += [fate(lambda a: a + 1, whole(), out_shardings=named("x")), fate(lambda a: a + 1, split(), out_shardings=named()),
           fate(lambda a: a[:4], split()), fate(lambda a: a.astype("int32"), split()), fate(lambda a: a.reshape(4, 2), split()),
           fate(lambda a: a.reshape(4, 2), jnp.ones(8)), fate(lambda a: a.sum(), jnp.ones(8)), fate(lambda a: jnp.ones(8), split()),
           fate(lambda a: lax.with_sharding_constraint(a + 1, named()), split()), fate(lambda a: a, split())]

g, z = jax.jit(lambda a, b: a + b, donate_argnums=0), jnp.ones(3)
for _ in range(2):
    g(jnp.zeros(3), z)
for _ in range(2):
    try:
        g(z, z)
    except Exception as error:
        print("refused")
