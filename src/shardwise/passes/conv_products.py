"""Convolutions that are matrix products, as matrix products, which run with what uses their results.

Comes in: a per-device program. Goes out: the program in which convolutions are products where along each dim the window is one element,
and moves by one, or is as long as the operand, and does not move: 1x1 convolutions, and the slopes of their kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.ir import Atom, Equation, Program, Var, map_equations, map_programs
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.products.conv import conv_general_dilated_p
from shardwise.ops.shapes.reshape import reshape_p
from shardwise.runtime.env import Env


def with_conv_products(program: Program, env: Env) -> Program:
    """`program` with its convolutions that are products of floats as such."""
    del env
    return _rewrite_convolutions(program)


def _rewrite_convolutions(program: Program) -> Program:
    program = map_equations(program, lambda e: map_programs(e, _rewrite_convolutions))
    products_by_place = {
        i: made for i, e in enumerate(program.equations) if e.op is conv_general_dilated_p and (made := _product(e))
    }
    if not products_by_place:
        return program
    equations = tuple(new for i, e in enumerate(program.equations) for new in products_by_place.get(i, (e,)))
    return Program(program.inputs, equations, program.outputs, program.num_consts, program.name)


def _product(eqn: Equation) -> list[Equation] | None:
    """The convolution as a product between changes of shape; None if it is none, or one that gives the dims in another order."""
    (x, w), (out,), params = eqn.inputs, eqn.outputs, eqn.params
    summed_dims = _summed_dims(eqn)
    if summed_dims is None:
        return None
    numbers = params["dimension_numbers"]
    (x_batch, x_channel, *x_space), (_, w_in, *w_space), (o_batch, o_channel, *o_space) = numbers
    over = [(x_channel, w_in), *[(x_space[i], w_space[i]) for i in summed_dims]]
    drop_x = [d for d, _ in over if x.aval.shape[d] == 1]  # a product that sums over nothing may be a multiplication
    drop_w = [d for _, d in over if w.aval.shape[d] == 1] + [d for i, d in enumerate(w_space) if i not in summed_dims]
    contracted_dims = [(a, b) for a, b in over if a not in drop_x]
    # By dim of the result the dim of an operand: those of x are free in their order, then that of w, or the other way round.
    free = {o_batch: x_batch} | {o_space[i]: d for i, d in enumerate(x_space) if i not in summed_dims}
    order = [free.get(d, -1) for d in range(out.aval.ndim) if d in free or d == o_channel]
    own = [d for d in order if d >= 0]
    if own != sorted(own) or order[0] >= 0 <= order[-1]:
        return None
    equations: list[Equation] = []
    left, right = _without(x, drop_x, equations, eqn), _without(w, drop_w, equations, eqn)
    at_x, at_w = _places(x.aval.ndim, drop_x), _places(w.aval.ndim, drop_w)
    sides = [(left, tuple(at_x(a) for a, _ in contracted_dims)), (right, tuple(at_w(b) for _, b in contracted_dims))]
    if order[0] < 0:
        sides.reverse()
    shape = tuple(n for d, n in enumerate(out.aval.shape) if d in free or d == o_channel)
    product = out if len(shape) == out.aval.ndim else Var(out.aval.update(shape=shape))
    dims = {"dimension_numbers": ((sides[0][1], sides[1][1]), ((), ())), "out_sharding": None}
    precisions = {k: params[k] for k in ("precision", "preferred_element_type")}
    equations.append(Equation(dot_general_p, (sides[0][0], sides[1][0]), (product,), dims | precisions, eqn.source))
    if product is not out:
        equations.append(_reshape(product, out, eqn))
    return equations


def _summed_dims(eqn: Equation) -> set[int] | None:
    """The dims of space that the convolution sums over, where it is the product of floats of one type that does so, on each device."""
    (x, w), (out,), params = eqn.inputs, eqn.outputs, eqn.params
    numbers = params["dimension_numbers"]
    if params["feature_group_count"] * params["batch_group_count"] != 1 or not x.aval.size * w.aval.size:
        return None
    if x.aval.dtype != w.aval.dtype or x.aval.dtype.kind in "iub" or any(v.aval.mesh is not None for v in (x, w, out)):
        return None
    dims_found: set[int] = set()
    for i, (a, b) in enumerate(zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], strict=True)):
        n, taps = x.aval.shape[a], w.aval.shape[b]
        if any(params["padding"][i]) or params["lhs_dilation"][i] != 1:
            return None
        if taps == n and params["rhs_dilation"][i] == 1:
            dims_found.add(i)
        elif taps != 1 or params["window_strides"][i] != 1:
            return None
    return dims_found


def _places(ndim: int, dropped: list[int]) -> Callable[[int], int]:
    """The index of a dim after some have been dropped."""
    kept_dims = [d for d in range(ndim) if d not in dropped]
    return kept_dims.index


def _without(a: Atom, dims: list[int], made: list[Equation], eqn: Equation) -> Atom:
    """`a` without these dims of size 1."""
    if not dims:
        return a
    less = Var(a.aval.update(shape=tuple(n for d, n in enumerate(a.aval.shape) if d not in dims)))
    made.append(_reshape(a, less, eqn))
    return less


def _reshape(a: Any, to: Var, eqn: Equation) -> Equation:
    return Equation(reshape_p, (a,), (to,), {"new_sizes": to.aval.shape, "out_sharding": None}, eqn.source)
