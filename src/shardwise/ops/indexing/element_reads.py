"""`read_elements`: elements of a table at positions, one operand per dim that they count along, in the shape of the result.

Dims of positions may have size 1. Fused loops read the elements where they use them; the kernel serves elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Atom, ElementRead, Equation, Op, ShapedArray, Var, define_op
from shardwise.ir.indexed import IndexedWindows
from shardwise.ir.op import Params, Types
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule


def reading_elements(eqn: Equation, read: ElementRead, positions: Sequence[Atom]) -> Equation:
    """The equation that reads as `eqn` does, an equation of an op with an `Op.element_read`, at these positions."""
    of, inner = eqn.op, dict(eqn.params)
    if "of" in inner:
        of, inner = inner["of"], dict(inner["inner"])
    params = {"of": of, "inner": tuple(inner.items()), "read": read, "out": eqn.outputs[0].aval}
    return Equation(read_elements, (eqn.inputs[0], *positions), eqn.outputs, params, eqn.source)


def copies_elements(read: ElementRead, table: ShapedArray, shape: Shape) -> bool:
    """Whether a loop copies elements one by one, or rows too short for kernels that copy rows. Narrow floats it would convert."""
    if table.dtype.kind not in "iuf" or (table.dtype.kind == "f" and table.dtype.itemsize < 4):
        return False
    rows = {o for d, o in enumerate(read.along) if o is not None and d not in read.aligned and d not in read.at}
    length, o = 1, len(shape) - 1
    while o in rows:
        length, o = length * shape[o], o - 1
    return length <= costs.READ_ROW


def _type(*types: ShapedArray, out: ShapedArray, **params: Any) -> ShapedArray:
    del types, params
    return out


def _rule(ins: Types, outs: Types, params: Params) -> Rule:
    read: ElementRead = params["read"]
    out = outs[0].shape
    first = len(out)  # the factor of the table's first dim that stays whole
    whole = [d for d, o in enumerate(read.along) if d in read.at or o is None or out[o] != ins[0].shape[d]]
    number = {d: first + k for k, d in enumerate(whole)}
    table = tuple(() if n == 1 else (number.get(d, read.along[d] or 0),) for d, n in enumerate(ins[0].shape))
    dims = [tuple((d,) if n != 1 else () for d, n in enumerate(t.shape)) for t in (*ins[1:], outs[0])]
    sizes = (*out, *(ins[0].shape[d] for d in whole))
    return Rule(
        (table, *dims[:-1]), (dims[-1],), sizes, (Kind.PASS,) * first + (Kind.REPLICATE,) * len(whole), frozenset()
    )


def _compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    """The kernel of the op at columns of positions."""
    read: ElementRead = params["read"]
    of: Op = params["of"]
    assert of.columns is not None
    kernel, lead = of.columns(env, dict(params["inner"])), env.lead
    window = {o for d, o in enumerate(read.along) if o is not None and d not in read.aligned}
    batch = [d for d in range(out_types[0].ndim) if d not in window]
    shape = tuple(out_types[0].shape[d] for d in batch)

    def column(block: Ndarray) -> Ndarray:
        if block.ndim == lead:
            block = block.reshape(block.shape + (1,) * out_types[0].ndim)
        own = block.shape[:lead]
        batch_block = block.reshape(own + tuple(block.shape[lead + d] for d in batch))
        return np.broadcast_to(batch_block, own + shape)[..., None]

    return lambda table, *positions: kernel(table, *map(column, positions))


def _indexing_of(params: Params, in_types: Types) -> IndexedWindows:
    del in_types
    read: ElementRead = params["read"]
    return IndexedWindows(1, False, read.at, read.spans, [read.wraps] * len(read.at), read.fill is not None)


def _element_read(eqn: Equation) -> ElementRead:
    return eqn.params["read"]


read_elements = define_op(
    "read_elements",
    type_rule=_type,
    typed=True,
    rule=_rule,
    compile=_compile,
    indexed=_indexing_of,
    element_read=_element_read,
    at_positions=True,
    extracts="copies",
)


def is_read(eqn: Equation, value: Var) -> bool:
    """Whether the equation reads elements of `value` at positions."""
    return eqn.op is read_elements and eqn.inputs[0] is value
