# Called op by op, a body sees every device's block when it prints, and results wear out_specs as written.
mesh = mesh_of((2, 2), ("x", "y"))

def body(block):
    print("before", block)
    summed = lax.psum(block, "x")
    print("after", summed, f"{block * lax.axis_index('y')}", jax.typeof(block), jax.sharding.get_abstract_mesh())
    return summed

def quiet(block):
    return block * 2

mapped = jax.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y"))
x = jnp.arange(16.0).reshape(4, 4)
rows = {"a": jnp.ones((4, 2)), "b": [jnp.arange(4), None]}
result = [mapped(x), jax.jit(mapped)(x), jax.shard_map(quiet, mesh=mesh, in_specs=P("x"), out_specs=P("x", None))(x),
          jax.shard_map(lambda t: jax.tree.map(quiet, t), mesh=mesh, in_specs=({"a": P("x", "y"), "b": P("x")},),
                        out_specs={"a": P("x", "y"), "b": P("x")})(rows),
          jax.shard_map(lambda x, text: x * len(text), mesh=mesh, in_specs=(P("x"), None), out_specs=P("x"))(x, "abc")]
