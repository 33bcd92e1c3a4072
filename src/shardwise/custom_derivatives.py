"""`shardwise.custom_derivatives`: derivatives given by hand, named as in jax.custom_derivatives."""

from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import tree_map
from shardwise.ops.rules.convert import as_array
from shardwise.transforms.derivatives.custom_derivatives import CustomVJPPrimal as CustomVJPPrimal
from shardwise.transforms.derivatives.custom_derivatives import SymbolicZero as SymbolicZero
from shardwise.transforms.derivatives.custom_derivatives import closure_convert as closure_convert
from shardwise.transforms.derivatives.custom_derivatives import custom_gradient as custom_gradient
from shardwise.transforms.derivatives.custom_derivatives import custom_jvp as custom_jvp
from shardwise.transforms.derivatives.custom_derivatives import custom_vjp as custom_vjp
from shardwise.transforms.derivatives.custom_derivatives import linear_call as linear_call
from shardwise.transforms.derivatives.custom_jvp import custom_jvp_op
from shardwise.transforms.derivatives.custom_rules import zero_tangent
from shardwise.transforms.derivatives.custom_vjp import custom_vjp_op
from shardwise.transforms.programs.primitives import primitive_of


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangents of the tree `val`: arrays, or with `symbolic_zeros` SymbolicZeros that hold nothing but their
    type.

    >>> jax.custom_derivatives.zero_from_primal(jnp.arange(2.0))
    Array([0., 0.], dtype=float32)
    """
    return tree_map(SymbolicZero.from_primal_value if symbolic_zeros else _zero, val)


def _zero(x: Any) -> Any:
    return zero_tangent(as_array(x))


def custom_vjp_primal_tree_values(tree: Any) -> Any:
    """`tree` with the value of each CustomVJPPrimal in its place. TypeError for other leaves.

    >>> jax.custom_derivatives.custom_vjp_primal_tree_values({"a": jax.custom_derivatives.CustomVJPPrimal(1.0, True)})
    {'a': 1.0}
    """

    def unwrap_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, CustomVJPPrimal):
            raise TypeError(
                f"unexpected leaf type {type(leaf)}: custom_vjp_primal_tree_values takes what a forward rule got."
            )
        return leaf.value

    return tree_map(unwrap_leaf, tree)


custom_jvp_call_p = primitive_of(custom_jvp_op)
custom_vjp_call_p = primitive_of(custom_vjp_op)

__dir__ = _listing(__name__)
