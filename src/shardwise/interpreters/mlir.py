"""`shardwise.interpreters.mlir`: lowerings of new primitives, given as functions."""

from collections.abc import Callable
from typing import Any

from shardwise.base.gone import REFUSING as _REFUSING
from shardwise.base.listing import listing as _listing
from shardwise.base.refused import refuse_name as _refused
from shardwise.transforms.programs.primitives import LowerFun
from shardwise.transforms.programs.primitives import register_lowering as register_lowering

__all__ = ["LoweringRuleContext", "lower_fun", "register_lowering"]

# What lowering rules into MLIR take first: a name for annotations, since nothing calls such rules.
LoweringRuleContext = _refused("interpreters.mlir.LoweringRuleContext", _REFUSING["extend.mlir"])


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> LowerFun:
    """A lowering that runs `fun` on traced arrays."""
    return LowerFun(fun, multiple_results)


__dir__ = _listing(__name__)
