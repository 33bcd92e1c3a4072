# on a mesh: a shard_map within another leaves axes that are manual already as they are.
from jax import shard_map

mesh, x = mesh_of((2, 2, 2), ("a", "b", "c"), "Auto"), data((8, 2))
inner = lambda f, axes, spec, out: lambda v: shard_map(f, in_specs=spec, out_specs=out, axis_names=axes, check_vma=False)(v)
outer = lambda f, out: jax.jit(shard_map(f, in_specs=P("a"), out_specs=out, axis_names={"a"}, check_vma=False))(x)
with jax.set_mesh(mesh):
    result = [
        outer(inner(lambda v: v + lax.axis_index("a") * 10, {"a", "b"}, P("b"), P("b")), P("a")),
        outer(inner(lambda v: lax.psum(v, ("a", "b")), {"a", "b"}, P("b"), P()), P()),
    ]
