"""`linear_transpose`: the transpose of a function that is linear, without a point to linearize it at.

In: a function and the types of its arguments. Out: a function of cotangents whose captured values are its leaves,
so that it passes through jit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import Partial, PyTreeDef, tree_flatten, tree_unflatten
from shardwise.ir import Program, ShapedArray, trace_program
from shardwise.ir.references import is_reference
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.interpreters.jvp import apart, cotangent_zeros, needs_implicit_sum
from shardwise.transforms.interpreters.linearize import pull_back


@dataclass(frozen=True, eq=False)
class _TransposedFunction:
    """The structure of a transposed function: its linear program, and the types and trees of arguments and results."""

    program: Program
    in_types: tuple[ShapedArray, ...]
    in_tree: PyTreeDef
    out_tree: PyTreeDef

    def __call__(self, consts: Sequence[Any], cotangent: Any) -> Any:
        leaves, tree = tree_flatten(cotangent)
        if tree != self.out_tree:
            raise TypeError(f"cotangent tree does not match function output, expected {self.out_tree} but got {tree}")
        cts = [as_array(as_value(c)) for c in leaves]
        for ct, want in zip(cts, self.program.out_types, strict=True):
            other = (ct.shape, ct.dtype) != (want.shape, want.dtype) or apart(want, ct.aval)
            if other or needs_implicit_sum(want, ct.aval):
                raise TypeError(
                    f"cotangent type does not match function output, expected {want.str_short()} but got "
                    f"{ct.aval.str_short()}"
                )
        cotangents = pull_back(self.program, consts, cts)
        outs = [cotangent_zeros(t) if c is None else c for c, t in zip(cotangents, self.in_types, strict=True)]
        return tree_unflatten(self.in_tree, outs)


def _type_of(x: Any) -> ShapedArray:
    if hasattr(x, "aval"):
        return x.aval
    if hasattr(x, "shape") and hasattr(x, "dtype") and not hasattr(x, "__array__"):
        return ShapedArray(tuple(x.shape), np.dtype(x.dtype))
    return as_value(x).aval


@user_facing
def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Any = ()) -> Callable[[Any], Any]:
    """The transpose of a function that is linear in its arguments; `primals` give types only (arrays, or anything
    with a shape and a dtype). The result takes a cotangent of `fun`'s result and gives a tuple of cotangents of
    the arguments.

    TypeError unless all dtypes at both ends are floating, or all are integer. `reduce_axes` can only be ();
    NotImplementedError otherwise.

    >>> jax.linear_transpose(lambda x: 2 * x, jnp.ones(2))(jnp.array([1.0, 3.0]))
    (Array([2., 6.], dtype=float32),)
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes is not supported; sum with psum inside shard_map instead.")
    leaves, in_tree = tree_flatten(primals)
    if any(map(is_reference, leaves)):
        raise TypeError("linear_transpose takes no Refs. Pass their arrays, ref[...].")
    types = tuple(_type_of(x) for x in leaves)
    out_tree: PyTreeDef | None = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_tree
        outs, out_tree = tree_flatten(fun(*tree_unflatten(in_tree, values)))
        return [as_array(as_value(o)) for o in outs]

    program, consts = trace_program(flat, types, "linear")
    assert out_tree is not None
    dtypes = [t.dtype for t in (*types, *program.out_types)]
    if not any(all(issubdtype(d, kind) for d in dtypes) for kind in (np.inexact, np.integer)):
        raise TypeError(
            "linear_transpose only supports functions whose inputs and outputs are all floating or all integer; "
            f"inputs and outputs are {[d.name for d in dtypes]}."
        )
    return Partial(_TransposedFunction(program, types, in_tree, out_tree), list(consts))
