"""The op of a compiled program that first gave a NaN or an infinity.

In: a per-device program, the blocks that it ran on, and a test of values. Out: the first equation whose result fails the test while its
operands pass. The program runs once more for it, with every value kept; nothing of this is on the way of a call that succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.ir import Equation, Program, Var
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan


def origin(
    program: Program, env: Env, blocks: Sequence[np.ndarray[Any, Any]], test: Callable[[Any], Any]
) -> Equation | None:
    """The equation that gave the first bad value; None where nothing may be run again, or an argument is to blame."""
    if any(e.op.has_effects(e.params) for e in program.equations):
        return None
    float_values = [v for e in program.equations for v in e.outputs if issubdtype(v.aval.dtype, np.inexact)]
    whole = Program(program.inputs, program.equations, tuple(float_values), program.num_consts, program.name)
    given = list(zip(program.inputs, blocks, strict=True))
    values = list(zip(float_values, Plan(whole, env).run(*blocks), strict=True))
    bad = {v for v, block in (*given, *values) if issubdtype(v.aval.dtype, np.inexact) and test(block).any()}
    guilty = [e for e in program.equations if any(v in bad for v in e.outputs)]
    first = [e for e in guilty if not any(isinstance(a, Var) and a in bad for a in e.inputs)]
    return next(iter(first), None)
