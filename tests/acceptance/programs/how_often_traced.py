# The mesh of an argument is part of its type, its layout on automatic axes is not.
def put(x, mesh, *spec): return jax.device_put(x, NamedSharding(mesh, P(*spec)))
xy, xz = mesh_of((2, 4), ("x", "y")), mesh_of((2, 4), ("x", "z"))
backwards = Mesh(np.array(jax.devices()[::-1]).reshape(2, 4), ("x", "y"))
v = jnp.ones(8)

@jax.jit
def f(x):
    print("traced")
    return x + 1

arguments = [v, np.ones(8, "float32"), put(v, xy, "x"), put(v, xy, "y"), put(v, xy), put(v, xz, "x"), put(v, backwards, "x"),
             jax.device_put(v, jax.devices()[3])]
for x in arguments:
    print("call")
    f(x)
result = f(f(put(v, xy, "x")))
