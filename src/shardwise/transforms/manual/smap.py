"""`smap`: `shard_map` over one axis, with dims in place of specs."""

from __future__ import annotations

from typing import Any

from shardwise.base.config import TODAY
from shardwise.base.tree import tree_map
from shardwise.sharding import PartitionSpec
from shardwise.transforms.manual.shard_map import INFER, Infer, make_shard_map


def smap(f: Any = None, /, *, in_axes: Any = INFER, out_axes: Any, axis_name: Any) -> Any:
    """`shard_map` of `f` over the axis `axis_name` of the context mesh, with dims instead of specs: `in_axes=0`
    splits dim 0, None splits no dim.

    Without `in_axes` the types of the arguments determine the split; the axis must be Explicit. `out_axes` says along
    which dim results are joined. Without `f` returns a decorator.

    Raises:
        TypeError: `axis_name` is no single name, or an axis is negative or no int.

    >>> with jax.set_mesh(jax.make_mesh((2,), ("x",))):
    ...     print(jax.jit(jax.smap(lambda x: x[::-1], in_axes=0, out_axes=0, axis_name="x"))(jnp.arange(4)))
    [1 0 3 2]
    """
    if f is None:
        return lambda g: smap(g, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if not isinstance(axis_name, str):
        raise TypeError(f"smap: axis_name must be one mesh axis name, got {axis_name!r}.")

    def spec(dim: Any) -> PartitionSpec:
        if dim is None:
            return PartitionSpec()
        if not isinstance(dim, int) or dim < 0:
            raise TypeError(f"smap: axes must be non-negative ints or None, got {dim!r}.")
        return PartitionSpec(*[None] * dim, axis_name)

    def specs(axes: Any) -> Any:
        return tree_map(spec, axes, is_leaf=lambda x: x is None)

    in_specs = in_axes if isinstance(in_axes, Infer) else specs(in_axes)
    return make_shard_map(
        f,
        mesh=None,
        in_specs=in_specs,
        out_specs=specs(out_axes),
        manual=frozenset({axis_name}),
        check=True,
        moves=True,
        era=TODAY,
    )
