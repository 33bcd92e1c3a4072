# Operands on two meshes over the same devices, permuted ones, and parts of the machine.
devices = [jax.devices()[i] for i in (3, 1, 0, 2)]
square = Mesh(np.array(devices).reshape(2, 2), ("x", "y"))
line = Mesh(np.array(devices), ("z",))
other = Mesh(np.array(jax.devices()[4:]), ("x",))
a = jax.device_put(data((8, 8)), NamedSharding(square, P("x", "y")))
b = jax.device_put(data((8, 8), seed=1), NamedSharding(line, P("z")))
c = jax.device_put(data((8, 8), seed=2), NamedSharding(other, P("x")))
result = [a + b, b + a, a @ b, jax.jit(lambda a, b: (a.T @ b, b.sum(0)))(a, b), jax.device_put(a, c.sharding) + c]
for clash in (lambda: a + c, lambda: jax.jit(jnp.dot)(b, c)):
    try:
        clash()
    except ValueError:
        print("refused")
