"""What may not stand under a predicate that varies over devices."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise  # noqa: F401  # defines the ops
from shardwise.ir import Equation, Program, ShapedArray, Var, all_ops
from shardwise.ops.control.regions import check_uniform


@pytest.mark.parametrize("name", sorted(name for name, op in all_ops().items() if op.across is not None))
def test_every_op_that_needs_other_devices_is_refused(name):
    op = all_ops()[name]
    x = Var(ShapedArray((4,), np.dtype("float32"), vma=frozenset("x")))
    program = Program(
        (x,),
        (Equation(op, (x,), (Var(x.aval),), {"axes" if op.absorbs is None else "sum_axes": ("x", "y")}),),
        (),
        0,
        "f",
    )
    with pytest.raises(ValueError, match=rf"{name} over .* stands inside a cond whose predicate varies over \('x',\)"):
        check_uniform("a cond", [program], frozenset("x"))
    check_uniform("a cond", [program], frozenset("z"))


def test_which_ops_need_other_devices():
    """An op that is a collective, and says nothing of it, is one that needs no data of others."""
    needless = {name for name, op in all_ops().items() if op.collective and op.across is None}
    assert needless == {"pvary", "pcast", "axis_index", "all_slice"}
