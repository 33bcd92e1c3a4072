"""Elementwise functions that SciPy computes and `lax` does not name: exponential integrals, Dawson's, hypergeometric, ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import Array, Op, ShapedArray, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ops.operands import Block, aligned, broadcast_shape, check_kind, check_same_dtype, elementwise_op
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Rule, pointwise_rule

__all__: list[str] = []


def _function(name: str) -> Any:
    """SciPy's ufunc in the operands' precision, or in double where it has no other."""

    def function(*blocks: Block) -> Block:
        import scipy.special

        dtype = blocks[0].dtype
        if dtype.itemsize < 4:
            blocks = tuple(b.astype(np.float32) for b in blocks)
        with np.errstate(all="ignore"):
            return np.asarray(getattr(scipy.special, name)(*blocks)).astype(dtype, copy=False)

    return function


# name: (number of operands, kinds that they may be of)
_TABLE = {
    "expi": (1, "f"), "exp1": (1, "f"), "expn": (2, "f"), "spence": (1, "f"), "ndtri": (1, "f"), "log_ndtr": (1, "f"),
    "erfcx": (1, "fc"), "dawsn": (1, "f"), "wofz": (1, "c"), "loggamma": (1, "c"), "gamma": (1, "fc"), "poch": (2, "f"),
    "hyp1f1": (3, "f"), "hyp2f1": (4, "f"), "owens_t": (2, "f"), "rgamma": (1, "c"), "jv": (2, "f"),
}  # fmt: skip

OPS: dict[str, Op] = {name: elementwise_op(f"scipy_{name}", _function(name), *(kinds,) * arity)
                      for name, (arity, kinds) in _TABLE.items()}  # fmt: skip


def apply(name: str, *values: Any) -> Array:
    """SciPy's function `name` of values with one dtype."""
    return bind(OPS[name], *values)


# -- functions with two results ------------------------------------------------------------------------------------------------


def _pair_type(name: str) -> Any:
    def rule(x: ShapedArray) -> tuple[ShapedArray, ShapedArray]:
        check_kind(name, x, "f")
        check_same_dtype(name, [x])
        out = ShapedArray(broadcast_shape(name, [x.shape]), x.dtype, x.weak_type)
        return out, out

    return rule


def _pair_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    return pointwise_rule((in_types[0].shape,), tuple(t.shape for t in out_types))


def _pair(name: str) -> Op:
    def kernel(env: Env, x: Block) -> tuple[Block, ...]:
        import scipy.special

        (block,) = aligned(env, [x])
        wide = block.astype(np.float32) if x.dtype.itemsize < 4 else block
        with np.errstate(all="ignore"):
            return tuple(np.asarray(v).astype(x.dtype, copy=False) for v in getattr(scipy.special, name)(wide))

    return define_op(f"scipy_{name}", type_rule=_pair_type(name), kernel=kernel, rule=_pair_rule, multiple_results=True)


PAIRS = {name: _pair(name) for name in ("sici", "fresnel")}


def apply_pair(name: str, x: Any) -> tuple[Array, Array]:
    """SciPy's function `name`, which has two results."""
    first, second = bind(PAIRS[name], x)
    return first, second
