"""`layout_constraint`: the order of a value's dims in memory, which shows where the value is a result of a compiled function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.shapes import Ndarray
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_unflatten
from shardwise.ir import Array, ShapedArray, bind, define_op
from shardwise.ir.op import Params
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import along, back
from shardwise.runtime.env import Env
from shardwise.sharding.formats import Layout


def _type(x: ShapedArray, *, layout: Layout) -> ShapedArray:
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _kernel(env: Env, x: Ndarray, *, layout: Layout) -> Ndarray:
    return x


def _batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """The mapped dim varies slowest."""
    (dim,) = dims
    assert dim is not None
    order = [d + (d >= dim) for d in params["layout"].major_to_minor]
    return [bind(layout_constraint_p, values[0], layout=Layout((dim, *order)))], [dim]


layout_constraint_p = define_op(
    "layout_constraint",
    type_rule=_type,
    kernel=_kernel,
    emit=ir.IDENTITY,
    additive=True,
    jvp=along("layout_constraint", lambda t, y, x, layout: t),
    transpose=back(lambda ct, x, layout: ct),
    batch=_batch,
)


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """The tree `x` with dims in the order of `layouts` (one, or a prefix tree) in memory.

    Outside of compiled functions the result has that order. Inside, results of the compiled function have it; other values follow
    the loops.

    Raises:
        ValueError: the layout orders another number of dims than `x` has.

    >>> columns = jax.experimental.layout.Layout((1, 0))
    >>> jax.experimental.layout.with_layout_constraint(jnp.ones((2, 3)), columns).shape
    (2, 3)
    """
    leaves, tree = tree_flatten(x)
    given = broadcast_prefix(layouts, x)
    return tree_unflatten(tree, [_constrain_layout(leaf, layout) for leaf, layout in zip(leaves, given, strict=True)])


def _constrain_layout(x: Any, layout: Layout) -> Array:
    value = as_array(as_value(x))
    if len(layout.major_to_minor) != value.ndim:
        raise ValueError(
            f"One of with_layout_constraint arguments is incompatible with its layout annotation {layout}: Length of major_to_minor and "
            f"the rank of the value should match. Got major_to_minor={layout.major_to_minor} and shape={value.shape}."
        )
    return bind(layout_constraint_p, value, layout=layout)
