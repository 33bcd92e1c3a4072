"""What is computed along a dim of few elements, of which slices are read one by one, becomes a value of each.

Comes in: a per-device program. Goes out: the program in which points `p` of [n, 3], say, whose `p[:, 0]`, `p[:, 1]` and `p[:, 2]` are used
apart, are three values of [n], and so are those that they are computed from. Loops run along n then, one of them from the coordinates to
what is made of these, and no points go through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.ir import Atom, Equation, Literal, Op, Program, Spread, Var, live_equations
from shardwise.ops.elementwise.binary import add_p, mul_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import slice_p, split_p
from shardwise.ops.shapes.transpose import squeeze_p, transpose_p
from shardwise.passes.parts import makers, users
from shardwise.passes.schedule import map_large
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import fits
from shardwise.runtime.machine import available

Place = tuple[Var, int]  # a value and one of its dims
_MERGES: dict[Any, Op] = {"sum": add_p, "prod": mul_p}


def with_dims_apart(program: Program, env: Env) -> Program:
    """`program` with values along such dims as a value per element."""
    return _apart(program, env) if available() else program


def _apart(program: Program, env: Env) -> Program:
    program = map_large(program, env, lambda inner: _apart(inner, env))
    while dim_by_value := _chosen(program, env.spread):  # another dim of the same values may be short, too
        program = live_equations(_Columns(program, dim_by_value).rewritten())
    return program


# -- which values ------------------------------------------------------------------------------------------------------


def _chosen(program: Program, spread: Spread) -> dict[Var, int]:
    """The values that come apart, each with the dim: all that is computed of them does, too, down to slices and sums along it."""
    if not any(e.op in (slice_p, split_p) and 1 in e.outputs[0].aval.shape for e in program.equations):
        return {}
    users_by_var, result_vars = users(program), {v for v in program.outputs if isinstance(v, Var)}
    # From a place to those that are computed of it; to none where slices and sums end it.
    leads: dict[Place, list[Place]] = {}
    slice_ends: set[Place] = set()
    for eqn in reversed(program.equations):
        out = eqn.outputs[0] if len(eqn.outputs) == 1 else None
        if out is None or out in result_vars or out not in users_by_var:
            continue
        if spread.elements(out.aval) < costs.FUSED_FEWEST:
            continue
        readers = [program.equations[i] for i in users_by_var[out]]
        for d, n in enumerate(out.aval.shape):
            if not 1 < n <= costs.APART_MOST or not _comes_apart(eqn, d):
                continue
            ends = [_cuts_one(r, d) or _reduces_along(r, d) for r in readers]
            next_places = [_place_after(r, d) for r, end in zip(readers, ends, strict=True) if not end]
            if all(p in leads for p in next_places):
                leads[out, d] = [p for p in next_places if p is not None]
                if any(_cuts_one(r, d) for r in readers):
                    slice_ends.add((out, d))
    return _components(leads, slice_ends)


def _components(leads: dict[Place, list[Place]], slice_ends: set[Place]) -> dict[Var, int]:
    """Of these places those that are connected with one of which slices are read, no value along two dims."""
    near: dict[Place, list[Place]] = {p: list(after) for p, after in leads.items()}
    for place, after in leads.items():
        for other in after:
            near[other].append(place)
    dim_by_value: dict[Var, int] = {}
    seen_places: set[Place] = set()
    for start in leads:
        if start not in slice_ends or start in seen_places:
            continue
        stack, together = [start], {start}
        while stack:
            new_places = [p for p in near[stack.pop()] if p not in together]
            together.update(new_places)
            stack += new_places
        seen_places |= together
        dims = dict(together)
        if len(dims) == len(together) and not dims.keys() & dim_by_value.keys():
            dim_by_value |= dims
    return dim_by_value


def _comes_apart(eqn: Equation, d: int) -> bool:
    """Whether each element along dim `d` of the result follows from elements of the operands."""
    (out,), params = eqn.outputs, eqn.params
    if eqn.op is broadcast_in_dim_p:
        return params["out_sharding"] is None and isinstance(eqn.inputs[0], Var)
    if eqn.op is transpose_p:
        return True
    if eqn.op is concatenate_p:
        alike = all(a.aval.shape[d] == 1 and a.aval.vma == out.aval.vma for a in eqn.inputs)
        return params["dimension"] == d and alike
    return _is_elementwise(eqn)


def _is_elementwise(eqn: Equation) -> bool:
    emit, rank = eqn.op.emit, eqn.outputs[0].aval.ndim
    if emit is None or emit.moves or "layout" in eqn.params:
        return False
    return all(fits(a.aval, emit.kinds) and a.aval.ndim == (0 if isinstance(a, Literal) else rank) for a in eqn.inputs)


def _cuts_one(eqn: Equation, d: int) -> bool:
    """Whether the equation slices one element along dim `d`, or each one by itself."""
    if eqn.op is split_p:
        return eqn.params["axis"] == d and set(eqn.params["sizes"]) == {1}
    return eqn.op is slice_p and eqn.params["limit_indices"][d] - eqn.params["start_indices"][d] == 1


def _reduces_along(eqn: Equation, d: int) -> bool:
    """Whether the equation adds up or multiplies the elements along dim `d`. Narrow floats would be rounded at each step."""
    dtype = eqn.inputs[0].aval.dtype if eqn.inputs else None
    if dtype is None or eqn.op.fold is None or eqn.op.reduction not in _MERGES or eqn.params != {"axes": (d,)}:
        return False
    return dtype == eqn.outputs[0].aval.dtype and (dtype.kind in "iu" or dtype.itemsize >= 4) and dtype.kind != "b"


def _place_after(eqn: Equation, d: int) -> Place | None:
    """The dim of the result that has the elements of dim `d` of an operand."""
    out = eqn.outputs[0] if len(eqn.outputs) == 1 else None
    if out is None:
        return None
    if eqn.op is broadcast_in_dim_p:
        return out, eqn.params["broadcast_dimensions"][d]
    if eqn.op is transpose_p:
        return out, eqn.params["permutation"].index(d)
    return (out, d) if _is_elementwise(eqn) else None


# -- the program of their elements -------------------------------------------------------------------------------------


def _without(shape: Sequence[int], d: int) -> Shape:
    return (*shape[:d], *shape[d + 1 :])


class _Columns:
    """Writes a program in which the values of `dim_by_value` are columns: values without that dim, one per element along it."""

    def __init__(self, program: Program, dim_by_value: dict[Var, int]) -> None:
        self.program, self.dim_by_value, self.made = program, dim_by_value, makers(program)
        self.result_vars = {v for v in program.outputs if isinstance(v, Var)}
        self.columns: dict[Var, list[Atom]] = {}
        self.equations: list[Equation] = []
        self.same: dict[Atom, Atom] = {}  # what stands for a value
        self._cut: dict[tuple[Atom, int, int], Atom] = {}
        self._expanded: dict[Atom, tuple[int, Atom]] = {}

    def rewritten(self) -> Program:
        """The program."""
        for eqn in self.program.equations:
            eqn = self._with_new_names(eqn)
            out = eqn.outputs[0] if eqn.outputs else None
            x = eqn.inputs[0] if eqn.inputs else None
            if out in self.dim_by_value:
                self.columns[out] = self._columns_of(eqn, self.dim_by_value[out])
            elif x in self.columns and eqn.op is slice_p:
                first = eqn.params["start_indices"][self.dim_by_value[x]]
                self._slice(eqn, self.dim_by_value[x], self.columns[x][first], eqn.outputs[0])
            elif x in self.columns and eqn.op is split_p:
                for column, part in zip(self.columns[x], eqn.outputs, strict=True):
                    self._slice(eqn, self.dim_by_value[x], column, part)
            elif x in self.columns:
                self._reduce(eqn, self.columns[x])
            elif eqn.op is squeeze_p and x in self._expanded and out not in self.result_vars:
                self._squeeze(eqn, *self._expanded[x])
            else:
                self.equations.append(eqn)
        p = self.program
        return Program(p.inputs, tuple(self.equations), p.outputs, p.num_consts, p.name)

    def _with_new_names(self, eqn: Equation) -> Equation:
        if self.same.keys().isdisjoint(eqn.inputs):
            return eqn
        inputs = tuple(self.same.get(a, a) for a in eqn.inputs)
        return Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)

    def _emit(self, op: Op, inputs: Sequence[Atom], like: Var, shape: Shape, params: Any, eqn: Equation) -> Var:
        out = Var(like.aval.update(shape=shape))
        self.equations.append(Equation(op, tuple(inputs), (out,), params, eqn.source))
        return out

    def _columns_of(self, eqn: Equation, d: int) -> list[Atom]:
        """The columns of the result along dim `d`."""
        (out,), params = eqn.outputs, eqn.params
        shape, count = _without(out.aval.shape, d), out.aval.shape[d]
        if eqn.op is concatenate_p:
            return [self._column(a, d, 0, eqn) for a in eqn.inputs]
        if eqn.op is broadcast_in_dim_p:
            (x,), dims = eqn.inputs, params["broadcast_dimensions"]
            at = dims.index(d) if d in dims else None
            new_dims = tuple(b - (b > d) for b in dims if b != d)
            stays_same = at is None or x.aval.shape[at] == 1
            columns = [x if at is None else self._column(x, at, j, eqn) for j in range(1 if stays_same else count)]
            new_params = {**params, "shape": shape, "broadcast_dimensions": new_dims}
            columns = [
                c if c.aval.shape == shape else self._emit(broadcast_in_dim_p, [c], out, shape, new_params, eqn)
                for c in columns
            ]
            return columns * (count // len(columns))
        if eqn.op is transpose_p:
            at = params["permutation"][d]
            order = tuple(p - (p > at) for p in params["permutation"] if p != at)
            columns = [self._column(eqn.inputs[0], at, j, eqn) for j in range(count)]
            if order == tuple(range(len(order))):
                return columns
            return [self._emit(transpose_p, [c], out, shape, {"permutation": order}, eqn) for c in columns]
        return [
            self._emit(eqn.op, [self._column(a, d, j, eqn) for a in eqn.inputs], out, shape, params, eqn)
            for j in range(count)
        ]

    def _column(self, x: Atom, d: int, j: int, eqn: Equation) -> Atom:
        """Element `j` along dim `d`, or the only one."""
        if x in self.columns:
            return self.columns[x][j]
        if not isinstance(x, Var):
            return x
        shape, column_shape = x.aval.shape, _without(x.aval.shape, d)
        j = j if shape[d] != 1 else 0
        if (x, d, j) in self._cut:
            return self._cut[x, d, j]
        maker = self.program.equations[self.made[x]] if x in self.made else None
        if maker is not None and maker.op is broadcast_in_dim_p and d not in maker.params["broadcast_dimensions"]:
            source = self.same.get(maker.inputs[0], maker.inputs[0])
            if source.aval.shape == column_shape:
                self._cut[x, d, j] = source
                return source
        part = x
        if shape[d] != 1:
            starts, limits = [0] * len(shape), list(shape)
            starts[d], limits[d] = j, j + 1
            params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None}
            part = self._emit(slice_p, [x], x, tuple(b - a for a, b in zip(starts, limits, strict=True)), params, eqn)
        self._cut[x, d, j] = column = self._emit(squeeze_p, [part], x, column_shape, {"dimensions": (d,)}, eqn)
        return column

    def _slice(self, eqn: Equation, d: int, column: Atom, out: Var) -> None:
        """A slice of one element along dim `d`: of its column, and with that dim again for who reads it so."""
        params, shape = eqn.params, _without(out.aval.shape, d)
        if column.aval.shape != shape:
            steps = params["strides"]
            cut: dict[str, Any] = {k: _without(params[k], d) for k in ("start_indices", "limit_indices")}
            cut["strides"] = None if steps is None else _without(steps, d)
            column = self._emit(slice_p, [column], out, shape, cut, eqn)
        dims = tuple(e for e in range(out.aval.ndim) if e != d)
        stretch = {"shape": out.aval.shape, "broadcast_dimensions": dims, "out_sharding": None}
        self.equations.append(Equation(broadcast_in_dim_p, (column,), (out,), stretch, eqn.source))
        self._expanded[out] = d, column

    def _squeeze(self, eqn: Equation, d: int, column: Atom) -> None:
        """A squeeze of such a slice: the column, or what is left to squeeze of it."""
        dims = eqn.params["dimensions"]
        if dims == (d,):
            self.same[eqn.outputs[0]] = column
        elif d in dims:
            params = {"dimensions": tuple(e - (e > d) for e in dims if e != d)}
            self.equations.append(Equation(squeeze_p, (column,), eqn.outputs, params, eqn.source))
        else:
            self.equations.append(eqn)

    def _reduce(self, eqn: Equation, columns: list[Atom]) -> None:
        """The columns added up or multiplied one after the other, as the reduction does it; a sum begins with 0, which -0 is added to."""
        merge, (out,) = _MERGES[eqn.op.reduction], eqn.outputs
        shape, terms = out.aval.shape, list(columns)
        if merge is add_p and out.aval.dtype.kind in "fc":
            scalar = out.aval.update(shape=(), vma=frozenset())
            terms.insert(0, Literal(np.zeros((), out.aval.dtype), scalar))
        total = terms[0]
        for term in terms[1:-1]:
            total = self._emit(merge, [total, term], out, shape, {}, eqn)
        self.equations.append(Equation(merge, (total, terms[-1]), eqn.outputs, {}, eqn.source))
