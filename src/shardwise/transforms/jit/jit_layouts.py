"""Orders in memory that the shardings of a `jit` ask for: of arguments, which are checked, and of results, which are laid out.

In: in_shardings and out_shardings that hold `Format`s. Out: per leaf a `Layout`, `Layout.AUTO` (row-major) or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.tree import broadcast_prefix, tree_leaves
from shardwise.engine.ordered import checked_order
from shardwise.engine.signature import Signature
from shardwise.ir import Program, Var
from shardwise.ops.elementwise.layout_constraint import layout_constraint_p
from shardwise.sharding.formats import Format, Layout
from shardwise.transforms.jit.jit_shardings import is_spec_leaf

AskedLayout = Layout | Any | None


def asked_layouts(tree: Any, full: Any) -> list[AskedLayout] | None:
    """One layout per leaf of `full`, of which `tree` is a prefix; None if there are none."""
    leaves = tree_leaves(tree, is_leaf=is_spec_leaf)
    if not any(isinstance(x, Format) and x.layout is not None for x in leaves):
        return None
    tree = tuple(tree) if isinstance(tree, list) else tree
    every = (
        [tree] * len(tree_leaves(full))
        if isinstance(tree, Format)
        else broadcast_prefix(tree, full, is_leaf=is_spec_leaf)
    )
    return [x.layout if isinstance(x, Format) else None for x in every]


def check_arguments(asked: Sequence[AskedLayout], sigs: Sequence[Signature], names: Sequence[str]) -> None:
    """Raise ValueError for committed arguments that are not in the order asked for, and for ones in an order of their own under AUTO."""
    for layout, sig, name in zip(asked, sigs, names, strict=False):
        if layout is None:
            continue
        own = Layout(tuple(range(sig.aval.ndim)) if sig.order is None else sig.order, ())
        if layout is Layout.AUTO:
            if sig.order is not None:
                raise ValueError(
                    f"Layout passed to jit does not match the layout on the respective arg. Got jit layout: AUTO, arg layout: {own} for "
                    f"arg type: {sig.aval.str_short()} at {name}. The layout given to `jax.jit` is `Layout.AUTO` but the arg has one. "
                    "Leave the layout of in_shardings out."
                )
            continue
        order = checked_order(layout, sig.aval.shape, f"jit arguments with pytree key path {name}")
        if sig.committed and order != own.major_to_minor:
            raise ValueError(
                "Layout passed to jit does not match the layout on the respective arg. Got jit layout: "
                f"{layout}, arg layout: {own} for arg type: {sig.aval.str_short()} at {name}. Place it with "
                "device_put(x, Format(layout, sharding)) first."
            )


def argument_orders(asked: Sequence[AskedLayout] | None, sigs: Sequence[Signature]) -> list[tuple[int, ...] | None]:
    """The order of each argument: as asked for, else that of the array that was given; None is the default."""
    layouts: Sequence[AskedLayout] = [None] * len(sigs) if asked is None else asked
    return [
        layout.major_to_minor if isinstance(layout, Layout) else sig.order
        for layout, sig in zip(layouts, sigs, strict=True)
    ]


def result_orders(asked: Sequence[AskedLayout] | None, program: Program) -> list[tuple[int, ...] | None] | None:
    """The order of each result: as asked for, else that of its `with_layout_constraint`; None if there is none."""
    layout_of_result = {e.outputs[0]: e.params["layout"] for e in program.equations if e.op is layout_constraint_p}
    if asked is None and not layout_of_result:
        return None
    orders: list[tuple[int, ...] | None] = []
    for i, atom in enumerate(program.outputs):
        layout = None if asked is None else asked[i]
        if layout is None or layout is Layout.AUTO:
            layout = layout_of_result.get(atom) if isinstance(atom, Var) else None
        what = "jit outputs with pytree key path result"
        orders.append(None if layout is None else checked_order(layout, atom.aval.shape, what))
    return orders if any(x is not None for x in orders) else None
