"""The op 'epilogue': a matrix product and the fused group that uses its result, panel by panel while that is in the cache.

Its program is a `dot_general`, maybe views of its result, then the group, and it may be one more `dot_general` that multiplies a
result of the group from the right. A thread computes a panel of the product into memory of its own, which stays in its second-level
cache, lets the group's loop run over it, and multiplies the result; only values that are used outside are written to memory. So the
scores of attention, say, never are. Where blocks lie so that this does not work, the equations run one after the other.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import cached_property
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Equation, Program, ShapedArray, Var, define_op
from shardwise.ir.op import Params, Types
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.env import Env
from shardwise.runtime.fused import fused
from shardwise.runtime.loops import Call, Calls, Met, Result, Specialization, SpecializedKernel
from shardwise.runtime.machine import address_of
from shardwise.runtime.plan import Plan, kernel_of
from shardwise.runtime.products import blas, shallow
from shardwise.runtime.products.contraction import GemmPlan, gemm_plan
from shardwise.runtime.products.panels import Panel, panel_bytes, panels
from shardwise.runtime.products.product import matrices_begin, matrix_layout, product_threads
from shardwise.runtime.products.walk import Place, Records, panel_walker


@dataclass(frozen=True, slots=True)
class _Steps:
    """The equations of a program by their part."""

    product: Equation
    views: tuple[Equation, ...]
    group: Equation
    after: Equation | None

    @staticmethod
    def of(program: Program) -> _Steps:
        """The steps of `program`."""
        equations = program.equations
        k = next(i for i, e in enumerate(equations) if e.op is fused)
        return _Steps(equations[0], equations[1:k], equations[k], equations[k + 1] if len(equations) > k + 1 else None)

    @property
    def seen(self) -> Var:
        """The product's result as the group sees it."""
        return (self.views[-1] if self.views else self.product).outputs[0]


class EpilogueKernel(SpecializedKernel):
    """A product, its group and maybe a second product, callable on blocks."""

    def __init__(self, env: Env, program: Program) -> None:
        super().__init__(self._specialize, lambda *blocks: self.plain(*blocks), scalars=not env.lead)
        self.program = program
        self._env = env
        self._steps = _Steps.of(program)
        self._group: Any = kernel_of(self._steps.group, env)

    def _specialize(self, blocks: Sequence[Ndarray]) -> Specialization | None:
        return _Maker(self.program, self._steps, self._env, self._group, blocks).specialization()

    @cached_property
    def plain(self) -> Callable[..., tuple[Ndarray, ...]]:
        """The equations one after the other."""
        return Plan(self.program, self._env).run


def _read(eqn: Equation, given: dict[Any, Ndarray]) -> list[Ndarray]:
    return [given[v] for v in eqn.inputs]


@dataclass(frozen=True, slots=True)
class _Factor:
    """Operands of a product as BLAS reads them: plain or transposed, elements from line to line, and where each matrix begins."""

    flag: int
    step: int
    begins: list[int]
    down: int  # bytes from row to row
    across: int


def _factor(x: Ndarray, batch: Shape) -> _Factor | None:
    layout = matrix_layout(x.shape, x.strides, x.itemsize)
    if layout is None:
        return None
    return _Factor(*layout, matrices_begin(x, batch).tolist(), *x.strides[-2:])


class _Maker:
    """Makes the specialization for blocks of given shapes and strides. Methods give None where panels do not work."""

    def __init__(self, program: Program, steps: _Steps, env: Env, group: Any, blocks: Sequence[Ndarray]) -> None:
        self.program = program
        self.env = env
        self.group = group
        self.given: dict[Any, Ndarray] = dict(zip(program.inputs, blocks, strict=True))
        self.product, self.views, self.fused, self.after = steps.product, steps.views, steps.group, steps.after
        self.out, self.seen = self.product.outputs[0], steps.seen
        self.dtype = self.out.aval.dtype
        self.position = self.fused.inputs.index(self.seen)
        self.records = Records()
        self.slots: dict[Any, int] = {}  # by value, operand's number or name
        self.outside = 0
        self.own: list[int] = []  # sizes of the thread's own slots

    def specialization(self) -> Specialization | None:
        called = blas.convention()
        if called is None or not all(b.size for b in self.given.values()):
            return None
        plan = self._plan(self.product, *_read(self.product, self.given))
        if plan is None:
            return None
        shown = plan.result(self.dtype).hollow()
        for view in self.views:
            shown = kernel_of(view, self.env)(shown)
        met: Met | None = self.group.meet_blocks(
            [shown if v is self.seen else self.given[v] for v in self.fused.inputs]
        )
        if met is None or met.full != shown.shape:
            return None
        if any(met.shapes[k] != met.full for k, n in enumerate(met.numbers) if n == self.position):
            return None
        second = None
        if self.after is not None:
            second = self._second(self.after, met, shown, plan)
            if second is None:
                return None
        axes = [d for d in sorted(range(shown.ndim), key=lambda d: -shown.strides[d]) if met.full[d] > 1]
        n = next(i for i in range(len(axes) + 1) if math.prod(met.full[d] for d in axes[:i]) == plan.rows)
        reduced = {d for d, r in enumerate(met.reduced) if r and met.full[d] > 1}
        sides = tuple(axes[:n]), tuple(axes[n:])
        found = panels(met.full, *sides, reduced, self.dtype.itemsize, cut_columns=self.after is None)
        if len(found) < 2 or len(found) + plan.matrices > costs.PANEL_MATRICES:
            return None
        try:
            return self._write_panels(called, plan, second, met, found)
        except _NoLibrary:
            return None

    def _plan(self, eqn: Equation, a: Ndarray, b: Ndarray) -> GemmPlan | None:
        """How the operands become matrices whose products lie row by row in the result."""
        sum_dims = tuple(self.env.dim(x) for x in eqn.params.get("sum_axes", ()))
        if any(a.shape[d] != b.shape[d] or a.shape[d] == 1 for d in sum_dims):
            return None
        dims = eqn.params["dimension_numbers"]
        plan = gemm_plan(self.env.lead, dims, sum_dims, a.shape, a.strides, b.shape, b.strides, a.itemsize, True)
        small = plan.matrices > 1 and plan.rows_each * plan.columns * plan.depth < costs.PANELS_LEAST_PRODUCT
        return None if small or plan.elementwise or plan.out_perm is not None else plan

    def _second(self, eqn: Equation, met: Met, shown: Ndarray, first: GemmPlan) -> GemmPlan | None:
        """The product after the group, if its left operand has the rows and columns of the product before."""
        k = self.fused.outputs.index(eqn.inputs[0])  # type: ignore[arg-type]
        result, steps = met.results[k], met.strides[len(met.shapes) + k]
        size = result.dtype.itemsize
        if any(
            n > 1 and s // size != t // shown.itemsize for n, s, t in zip(met.full, steps, shown.strides, strict=True)
        ):
            return None
        left = result.hollow()
        plan = self._plan(eqn, left, self.given[eqn.inputs[1]])
        if plan is None or not plan.keeps_left(left) or (plan.rows, plan.depth) != (first.rows, first.columns):
            return None
        return plan

    # -- records ---------------------------------------------------------------------------------------------------------

    def _write_panels(
        self, called: blas.Convention, plan: GemmPlan, second: GemmPlan | None, met: Met, found: list[Panel]
    ) -> Specialization | None:
        left, right = (_factor(x, plan.batch) for x in plan.operands(*_read(self.product, self.given)))
        later = None
        if second is not None and self.after is not None:
            later = _factor(second.right(self.given[self.after.inputs[1]]), second.batch)
        if left is None or right is None or (second is not None and later is None):
            return None
        numbers = sorted({n for n in met.numbers if n != self.position})
        for name in ("left", "right", *numbers, *(["later"] if later else []), *self.program.outputs):
            self.slots[name] = self.outside
            self.outside += 1
        most = max(len(p.rows) * len(p.columns) for p in found)
        for v in (self.out, *self.fused.outputs):
            if v not in self.slots:
                self._own(v, most * v.aval.dtype.itemsize)
        met = replace(met, streaming=self._streams(met, found))
        sizes = len(found[0].rows), len(found[0].columns), plan.depth
        _expect(called, self.dtype.char, left.flag, right.flag, *sizes)  # while the group's loop is made
        groups: dict[Shape, Calls] = {}
        for panel in found:
            if panel.extents not in groups:
                cut = replace(met, full=panel.extents, strides=self._strides(met, panel, plan.columns))
                group = self.group.call_alone(cut)
                if group is None:
                    return None
                groups[panel.extents] = group
        self._own("spare", max(g.bytes for g in groups.values()))
        gemm = partial(_function, called, self.dtype.char)
        if second is not None and later is not None:  # while another thread may still make the first one's function
            gemm(blas.PLAIN, later.flag, sizes[0], second.columns, second.depth)
        for panel in found:
            group = groups[panel.extents]
            (call,) = group.calls
            self._multiply(gemm, plan, left, right, panel)
            self.records.loop(address_of(call.kernel), call.job_at, self._places(met, panel, group))
            if second is not None and later is not None:
                self._multiply_after(gemm, second, later, panel)
            self.records.end()
        job, bytes = self.records.job(self.outside, self.own)
        threads = min(product_threads(), len(found))
        inputs = tuple(self.program.inputs.index(self.fused.inputs[n]) for n in numbers)  # type: ignore[arg-type]
        results = tuple(self._result(v, plan, second, met) for v in self.program.outputs if isinstance(v, Var))
        loops = tuple(call for group in groups.values() for call in group.calls)
        walk = Call(panel_walker(self.dtype.char, ctypes.sizeof(called.integer)), job, self.outside + 1, threads)
        calls = Calls([walk], bytes * threads, (0,))
        left_at, right_at = (self.program.inputs.index(v) for v in self.product.inputs)  # type: ignore[arg-type]
        later_at = None if self.after is None else self.program.inputs.index(self.after.inputs[1])  # type: ignore[arg-type]

        def run(blocks: Sequence[Ndarray], results: Sequence[Ndarray]) -> None:
            used = [*plan.operands(blocks[left_at], blocks[right_at]), *(blocks[i] for i in inputs)]
            if second is not None and later_at is not None:
                used.append(second.right(blocks[later_at]))
            calls(*map(address, used), *map(address, results))

        return Specialization(results, run, held=loops)

    def _own(self, name: Any, size: int) -> None:
        self.slots[name] = self.outside + len(self.own)
        self.own.append(size)

    def _result(self, v: Var, plan: GemmPlan, second: GemmPlan | None, met: Met) -> Result:
        product = plan if v is self.out else second if self.after is not None and v is self.after.outputs[0] else None
        return met.results[self.fused.outputs.index(v)] if product is None else product.result(v.aval.dtype)

    # -- where a panel lies ----------------------------------------------------------------------------------------------

    def _streams(self, met: Met, found: Sequence[Panel]) -> bool:
        """Whether results may be written past the cache: nobody reads them at once, and each panel's begin with a cache line."""
        results = met.strides[len(met.shapes) :]
        return self.after is None and not any(_offset(p, own) % 64 for p in found for own in results)

    def _value(self, met: Met, k: int) -> Var | None:
        """The value that access k, or result k after those, is, if a product or the group makes it."""
        if k >= len(met.shapes):
            return self.fused.outputs[k - len(met.shapes)]
        return self.out if met.numbers[k] == self.position else None

    def _is_own(self, value: Any) -> bool:
        """Whether a value lies in the thread's own memory, which holds one panel of it."""
        return value is not None and self.slots[value] >= self.outside

    def _strides(self, met: Met, panel: Panel, columns: int) -> tuple[Shape, ...]:
        """The strides of accesses and results within a panel, where rows are shorter in the thread's own memory."""
        found = list[Shape]()
        for k, own in enumerate(met.strides):
            value = self._value(met, k)
            row = columns * value.aval.dtype.itemsize if value is not None and self._is_own(value) else 0
            steps = (s // columns * len(panel.columns) if row and s >= row else s for s in own)
            found.append(tuple(0 if n == 1 else s for n, s in zip(panel.extents, steps, strict=True)))
        return tuple(found)

    def _places(self, met: Met, panel: Panel, group: Calls) -> list[Place]:
        places = list[Place]()
        for k, own in enumerate(met.strides):
            value = self._value(met, k)
            slot = self.slots[met.numbers[k] if value is None else value]
            places.append((slot, 0 if self._is_own(value) else _offset(panel, own)))
        return places + [(self.slots["spare"], offset) for offset in group.offsets]

    def _multiply(self, gemm: Callable[..., int], plan: GemmPlan, left: _Factor, right: _Factor, panel: Panel) -> None:
        size, slot, n = self.dtype.itemsize, self.slots[self.out], len(panel.columns)
        own = self._is_own(self.out)
        for number, rows in _by_matrix(panel.rows, plan.rows_each):
            at = number * plan.rows_each + rows.start
            to = (at - panel.rows.start) * n if own else at * plan.columns + panel.columns.start
            a = self.slots["left"], left.begins[number] + rows.start * left.down
            b = self.slots["right"], right.begins[number] + panel.columns.start * right.across
            flags, sizes = (left.flag, right.flag), (len(rows), n, plan.depth)
            steps = left.step, right.step, n if own else plan.columns
            self.records.product(gemm(*flags, *sizes), flags, sizes, a, b, (slot, to * size), steps)

    def _multiply_after(self, gemm: Callable[..., int], plan: GemmPlan, right: _Factor, panel: Panel) -> None:
        assert self.after is not None
        value, out = self.after.inputs[0], self.after.outputs[0]
        size = self.dtype.itemsize
        for number, rows in _by_matrix(panel.rows, plan.rows_each):
            at = number * plan.rows_each + rows.start
            begin = at - panel.rows.start if self._is_own(value) else at
            a = self.slots[value], begin * plan.depth * size
            b, to = (self.slots["later"], right.begins[number]), (self.slots[out], at * plan.columns * size)
            flags, sizes = (blas.PLAIN, right.flag), (len(rows), plan.columns, plan.depth)
            steps = plan.depth, right.step, plan.columns
            self.records.product(gemm(*flags, *sizes), flags, sizes, a, b, to, steps)


def _expect(called: blas.Convention, char: str, left: int, right: int, m: int, n: int, k: int) -> None:
    """Have the function for such products made, or its library loaded, in another thread."""
    if shallow.fits(char, left, m, n, k):
        shallow.prepare(char, left, right, min(n, shallow.WIDEST + 1), ctypes.sizeof(called.integer))
    else:
        blas.prepare()


def _function(called: blas.Convention, char: str, left: int, right: int, m: int, n: int, k: int) -> int:
    """The address of the fastest function for such products. Raises `_NoLibrary` if that function's library is missing."""
    if shallow.fits(char, left, m, n, k):
        return shallow.function(char, left, right, n, ctypes.sizeof(called.integer), math.inf)  # once for each panel
    mine = blas.library()
    if mine is None:
        raise _NoLibrary
    return address_of(mine.gemm[char])


class _NoLibrary(Exception):
    """Products in panels need a library of our own."""


def _offset(panel: Panel, strides: Shape) -> int:
    return sum(i * s for i, s in zip(panel.starts, strides, strict=True))


def _by_matrix(rows: range, each: int) -> list[tuple[int, range]]:
    """Rows that are counted over all matrices, which have `each` rows: by matrix, counted within it."""
    found = list[tuple[int, range]]()
    for number in range(rows.start // each, -(-rows.stop // each)):
        first = number * each
        found.append((number, range(max(rows.start, first) - first, min(rows.stop, first + each) - first)))
    return found


def _epilogue_type(*types: ShapedArray, program: Program) -> tuple[ShapedArray, ...]:
    return program.out_types


def _epilogue_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Any:
    return EpilogueKernel(env, params["program"])


def _epilogue_workspace(in_types: Types, out_types: Types, params: Params) -> int:
    """Bytes of what threads keep of one panel each."""
    program = params["program"]
    steps = _Steps.of(program)
    out = steps.product.outputs[0]
    size = panel_bytes(out.aval.nbytes)
    own = [v for v in (out, *steps.group.outputs) if v not in program.outputs]
    threads = min(product_threads(), -(-out.aval.nbytes // size))
    return threads * sum(size * v.aval.itemsize // out.aval.itemsize for v in own if v.aval.size == out.aval.size)


epilogue_p = define_op(
    "epilogue",
    type_rule=_epilogue_type,
    compile=_epilogue_compile,
    workspace=_epilogue_workspace,
    multiple_results=True,
    local=True,
)
