"""The op 'small': a program over small values, with its loops and branches, as one machine function.

The function is compiled at the first call, for the leading extents of the blocks at hand. It takes a tuple of arrays, operands
and then results, and reads where they lie from the objects themselves: a call costs little more than making its results. Arrays
that are not as the function needs them are copied first. A large result that updates windows of an operand begins as a copy of it,
or is written over it. Long runs let other threads of Python run, and look at signals now and then.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from shardwise.base.dtypes import physical
from shardwise.base.generated import define
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import ALONE, Loop, Program, ShapedArray, Spread, Var, define_op, region_of, subprograms
from shardwise.ir.op import Params, Types
from shardwise.runtime import copies, costs
from shardwise.runtime.env import Env
from shardwise.runtime.loops import dense_steps, dtype_name
from shardwise.runtime.loops import module as module_of
from shardwise.runtime.machine import Flow, llvm
from shardwise.runtime.memory import alone, pool
from shardwise.runtime.plan import Plan
from shardwise.runtime.small.body import BodyWriter
from shardwise.runtime.small.code import Code, Unwritable, Value
from shardwise.runtime.small.cost import small_cost
from shardwise.runtime.small.in_place import updates
from shardwise.runtime.small.leads import out_leads
from shardwise.runtime.small.parts import InParts, parts_of

# Where a tuple's items begin, and an array's fields: its data, type and flags (C order 1, aligned 0x100), and the type's byte order.
_ITEMS = tuple.__basicsize__
_DATA = object.__basicsize__
_TYPE, _FLAGS, _ORDER = _DATA + 40, _DATA + 48, object.__basicsize__ + 10
_FIT = 0x101
_MOST_STRIDES = 8  # combinations of strides of large operands for which a program has functions
_SWAPPED = ord(">" if np.little_endian else "<")

TOOLS = (ctypes.c_void_p * 3)(
    *[
        ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name in ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")
    ]
)
_CALL = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_tools = ctypes.addressof(TOOLS)


def _fits(array: np.ndarray[Any, Any]) -> tuple[int, bool]:
    """An array's address, and whether it lies as functions need it, read as they do."""
    holder = (array,)
    at = ctypes.c_void_p.from_address(id(holder) + _ITEMS).value or 0
    flags = ctypes.c_int.from_address(at + _FLAGS).value
    dtype = ctypes.c_void_p.from_address(at + _TYPE).value or 0
    order = ctypes.c_uint8.from_address(dtype + _ORDER).value
    return ctypes.c_void_p.from_address(at + _DATA).value or 0, flags & _FIT == _FIT and order != _SWAPPED


def _understands_objects() -> bool:
    """Whether tuples and arrays are built as `_fits` takes them to be."""
    grid = np.zeros((4, 6), np.float32)
    samples = [grid, grid[1:], grid.T, grid[:, ::2], np.zeros((), np.int8), np.zeros(3, np.dtype("i4").newbyteorder()),
               np.ndarray((2,), np.float64, np.zeros(24, np.uint8), 1)]  # fmt: skip
    return all(
        _fits(x) == (x.__array_interface__["data"][0], x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative)
        for x in samples
    )


def available() -> bool:
    """Whether such functions can be made and called here."""
    return _known[0] and llvm.available()


_known = [_understands_objects()]


@dataclass(frozen=True, slots=True)
class SmallProgram:
    """A compiled program. `run(*blocks)` takes memory for result j, too, as `r{j}`, for each (j, operand) of `updates`: that
    operand's own, which is not read otherwise.
    """

    run: Callable[..., tuple[Ndarray, ...]]
    updates: tuple[tuple[int, int], ...] = ()


class SmallKernel:
    """A small program, callable on blocks; keeps a function per combination of leading extents."""

    __slots__ = ("_env", "_made", "_patient", "_single", "_updates", "program")

    def __init__(self, env: Env, program: Program, patient: bool = False) -> None:
        self.program = program
        self._patient = patient
        self._env = env
        self._made: dict[tuple[Shape, ...], Callable[..., tuple[Ndarray, ...]]] = {}
        self._single: Any = None
        self._updates: dict[tuple[Shape, ...], tuple[tuple[int, int], ...]] = {}

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        lead = self._env.lead
        if not lead:
            return (self._single or self._first())(*blocks)
        key = tuple([b.shape[:lead] for b in blocks])
        run = self._made.get(key)
        if run is None:
            run = self._made[key] = self._run_for(key)
        return run(*blocks)

    def _first(self) -> Callable[..., tuple[Ndarray, ...]]:
        self._single = self._run_for(((),) * len(self.program.inputs))
        return self._single

    def _run_for(self, leads: Sequence[Shape]) -> Callable[..., tuple[Ndarray, ...]]:
        """The function. A patient program runs the ops' kernels until it was called often enough for compilation to pay."""
        if not self._patient:
            return self._compile_for(leads)
        by_kernel, left = Plan(self.program, self._env).run, costs.SMALL_PATIENCE

        def run(*blocks: Ndarray, **memory: Ndarray) -> tuple[Ndarray, ...]:
            nonlocal left
            left -= 1
            if left >= 0:
                return by_kernel(*blocks)
            made = self._compile_for(leads)
            if self._env.lead:
                self._made[tuple(leads)] = made
            else:
                self._single = made
            return made(*blocks, **memory)

        return run

    def _compile_for(self, leads: Sequence[Shape]) -> Callable[..., tuple[Ndarray, ...]]:
        try:
            function = compiled_in_parts(self.program, leads, self._env) or compile_program(
                self.program, leads, self._env
            )
        except Unwritable:
            return Plan(self.program, self._env).run
        self._updates[tuple(leads)] = function.updates
        return function.run


class UpdatingKernel(SmallKernel):
    """A small program with results that update windows of operands and may be written over these operands."""

    __slots__ = ()

    def over(self, free: Sequence[int], blocks: list[Any]) -> tuple[Ndarray, ...]:
        """The results, written over those operands of `free` (positions) that nothing but the list can reach."""
        lead = self._env.lead
        key = tuple([b.shape[:lead] for b in blocks])
        run = self._made.get(key) if lead else self._single
        if run is None:
            run = self._made[key] = self._run_for(key) if lead else self._first()
        taken = [
            (j, i) for j, i in self._updates.get(key, ()) if i in free and alone(blocks, i) and _writable(blocks[i])
        ]
        memory = {f"r{j}": blocks[i] for j, i in taken}
        given = list(blocks)
        for _, i in taken:
            blocks[i] = None
        return run(*given, **memory)


def _writable(block: Ndarray) -> bool:
    return block.flags.carray and block.dtype.isnative


_Updates = dict[int, tuple[int, tuple[Var, ...]]]


def _find_updates(program: Program, leads: Sequence[Shape], outs: Sequence[Shape], env: Env) -> _Updates:
    """By large result that updates windows of an operand: the operand's position, and all values from it to the result."""
    found: _Updates = {}
    for j, (shape, result) in enumerate(zip(outs, program.outputs, strict=True)):
        if not isinstance(result, Var) or _nbytes(shape, result) < costs.SMALL_POOLED_FROM:
            continue
        for i, (var, ext) in enumerate(zip(program.inputs, leads, strict=True)):
            if ext + var.aval.shape == shape:
                (chain,) = updates(program, [var], [result], env.spread)
                if chain:
                    found[j] = i, chain
    return found


def _nbytes(shape: Shape, v: Any) -> int:
    return math.prod(shape) * physical(v.aval.dtype).itemsize


def _copy(shape: Shape, dtype: np.dtype[Any], x: Ndarray) -> Ndarray:
    out = pool.empty(shape, dtype)
    copies.fill(out, x)
    return out


def _fit_operand(x: Ndarray, dtype: np.dtype[Any]) -> Ndarray:
    """`x` as functions need it, or a copy."""
    if x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative:
        return x
    return np.array(x, dtype, order="C") if x.nbytes < costs.SMALL_POOLED_FROM else _copy(x.shape, dtype, x)


def _strides_by_operand(blocks: Sequence[Ndarray | None]) -> tuple[tuple[int, Shape], ...]:
    """The strides of operands that are not in C order and so large that programs read parts of them only: no copy pays."""
    return tuple(
        (i, b.strides)
        for i, b in enumerate(blocks)
        if b is not None
        and b.size > costs.SMALL_LARGEST_READ
        and not b.flags.c_contiguous
        and b.flags.aligned
        and b.dtype.isnative
    )


class _Elsewhere:
    """By the strides of large operands the functions that read these where they lie; of other strides they are copied."""

    __slots__ = ("_env", "_in_parts", "_leads", "_made", "_program")

    def __init__(self, program: Program, leads: Sequence[Shape], env: Env, in_parts: bool) -> None:
        self._program, self._leads, self._env, self._in_parts = program, leads, env, in_parts
        self._made: dict[tuple[tuple[int, Shape], ...], Callable[..., tuple[Ndarray, ...]]] = {}

    def __call__(self, *blocks: Ndarray | None) -> Callable[..., tuple[Ndarray, ...]] | None:
        """The function for these blocks; None if all that do not fit are copied."""
        strides = _strides_by_operand(blocks)
        if not strides:
            return None
        if strides not in self._made and len(self._made) < _MOST_STRIDES:
            self._made[strides] = compile_program(
                self._program, self._leads, self._env, dict(strides), self._in_parts
            ).run
        return self._made.get(strides)


def compiled_in_parts(program: Program, leads: Sequence[Shape], env: Env) -> SmallProgram | None:
    """The program as a function whose parts threads share; None where it has none, and where results are written over operands."""
    parts = parts_of(program, leads, env)
    if parts is None:
        return None
    outs = _result_shapes(program, leads, env)
    if _find_updates(program, leads, outs, env):
        return None
    part = compile_program(program, parts.leads(leads), env, in_parts=True)
    makes = [(_maker(shape, v), shape, physical(v.aval.dtype)) for shape, v in zip(outs, program.outputs, strict=True)]
    return SmallProgram(InParts(parts, part.run, makes, list(TOOLS)))


def _result_shapes(program: Program, leads: Sequence[Shape], env: Env) -> list[Shape]:
    return [ext + v.aval.shape for v, ext in zip(program.outputs, out_leads(program, leads, env), strict=True)]


def _maker(shape: Shape, v: Any) -> Callable[..., Ndarray]:
    """A function that gives a result its memory."""
    return np.empty if _nbytes(shape, v) < costs.SMALL_POOLED_FROM else pool.empty


def compile_program(
    program: Program,
    leads: Sequence[Shape],
    env: Env,
    strides: Mapping[int, Shape] = MappingProxyType({}),
    in_parts: bool = False,
) -> SmallProgram:
    """The program as a function of blocks with these leading extents. Unwritable if it has no form for them. `strides`: of operands
    that always have these; others are copied into C order if they are not in it. `in_parts`: the function takes memory for all
    results, as `r{j}`, and `tools`, and lets other threads run.
    """
    outs = _result_shapes(program, leads, env)
    found = _find_updates(program, leads, outs, env)
    inputs = [ext + v.aval.shape for v, ext in zip(program.inputs, leads, strict=True)]
    cost, endless = small_cost(program, env.spread), _endless(program)
    long = in_parts or cost >= costs.SMALL_UNLOCKED or endless
    text, scratch = module(program, inputs, outs, env, found, strides, long)
    slower = math.inf if endless else costs.DRAFT_SMALL * cost
    function = llvm.compile_function("kernel", text, slower).as_ctypes(_CALL)
    names = [f"a{i}" for i in range(len(program.inputs))]
    results = [f"r{i}" for i in range(len(outs))]
    space: dict[str, Any] = {"function": function, "empty": np.empty, "large": pool.empty, "fitting": _fit_operand,
                             "tools": _tools, "asarray": np.asarray, "byte": np.dtype(np.uint8)}  # fmt: skip
    placed = [f"r{j}" for j in (range(len(outs)) if in_parts else found)]
    lines = [f"def run({', '.join([*names, *(f'{r}=None' for r in placed), 'tools=tools'])}):"]
    if not env.lead:  # NumPy's functions of 0-d arrays give scalars
        lines += [
            f"    if type({n}) is not ndarray: {n} = asarray({n})"
            for n, v in zip(names, program.inputs, strict=True)
            if not v.aval.ndim
        ]
        space["ndarray"] = np.ndarray
    for j, (r, shape, v) in enumerate(zip(results, outs, program.outputs, strict=True)):
        dtype = space[f"t{r}"] = physical(v.aval.dtype)
        if j in found:
            space[f"copy{j}"] = partial(_copy, shape, dtype)
            lines.append(f"    if {r} is None: {r} = copy{j}(a{found[j][0]})")
        elif not in_parts:
            space[f"make{j}"] = _maker(shape, v)
            lines.append(f"    {r} = make{j}({shape}, t{r})")
    if scratch:
        lines.append(f"    scratch = {'empty' if scratch < costs.SMALL_POOLED_FROM else 'large'}(({scratch},), byte)")
    updated = {i: f"r{j}" for j, (i, _) in found.items()}
    given = ", ".join([*(updated.get(i, n) for i, n in enumerate(names)), *results, *(["scratch"] if scratch else [])])
    lines.append(f"    if function(({given},), tools):")
    if not strides:
        space["elsewhere"] = _Elsewhere(program, leads, env, in_parts)
        read = ", ".join("None" if i in updated else n for i, n in enumerate(names))
        lines.append(f"        other = elsewhere({read})")
        given_on = ", ".join([*names, *(f"{r}={r}" for r in placed), "tools=tools"])
        lines.append(f"        if other: return other({given_on})")
    for i, v in enumerate(program.inputs):
        if i not in updated and i not in strides:
            dtype = space[f"d{i}"] = physical(v.aval.dtype)
            lines.append(f"        a{i} = fitting(a{i}, d{i})")
    lines.append(f"        function(({given},), tools)")
    lines.append(f"    return ({', '.join(results)},)")
    define("\n".join(lines), f"<small program {program.name}>", space)
    return SmallProgram(space["run"], tuple((j, i) for j, (i, _) in found.items()))


def module(
    program: Program,
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    env: Env,
    updated: _Updates,
    strides: Mapping[int, Shape],
    long: bool,
) -> tuple[str, int]:
    """The LLVM module with `i32 kernel(tuple of arrays, functions of Python)`, and the bytes of scratch memory that it needs.

    The tuple holds operands, results and, where any is needed, scratch memory; results of `updated` stand there for their operands,
    too, whose elements they hold. The function gives 1 if an operand does not lie as needed, without having done anything, and 2 if
    a signal's handler raised. It does not look at operands whose `strides` are given. A `long` one lets other threads of Python run.
    """
    code = Code(env, llvm.target().wide)
    code.met = _count_ops(program)
    arrays = len(inputs) + len(outputs)
    for k in range(arrays):
        code.line(f"%array{k} = load ptr, ptr {code.advance_address('%given', 1, _ITEMS + 8 * k)}, align 8")
        code.line(f"%data{k} = load ptr, ptr {code.advance_address(f'%array{k}', 1, _DATA)}, align 8")
    _check_operands(code, [k for k in range(len(inputs)) if k not in strides])
    memory = code.slot()
    if long:
        code.line("%save = load ptr, ptr %tools, align 8")
        code.line("%state = call ptr %save()")
        code.line("store ptr %state, ptr %held, align 8")
    given = [
        Value(shape, dtype_name(v.aval), place=f"%data{k}", steps=dense_steps(shape, physical(v.aval.dtype).itemsize))
        for k, (shape, v) in enumerate(zip((*inputs, *outputs), (*program.inputs, *program.outputs), strict=True))
    ]
    wanted = given[len(inputs) :]
    for k, steps in strides.items():
        given[k] = replace(given[k], steps=steps)
    for j, (i, _) in updated.items():
        given[i] = wanted[j] = replace(wanted[j], updated=True)
    values = [code.settle_value(v) for v in given[: len(inputs)]]
    BodyWriter(code, program, values, 0, {v: wanted[j] for j, (_, chain) in updated.items() for v in chain[1:]}).run(
        wanted
    )
    if long:
        code.line("%back.at = getelementptr ptr, ptr %tools, i64 1")
        code.line("%back = load ptr, ptr %back.at, align 8")
        code.line("%now = load ptr, ptr %held, align 8")
        code.line("call void %back(ptr %now)")
    code.line("ret i32 0")
    if code.polls:
        code.declare("interrupted", _interrupt_check())
    if code.scratch:
        memory += [
            f"  %arena.item = getelementptr i8, ptr %given, i64 {_ITEMS + 8 * arrays}",
            "  %arena.array = load ptr, ptr %arena.item, align 8",
            f"  %arena.field = getelementptr i8, ptr %arena.array, i64 {_DATA}",
            "  %arena = load ptr, ptr %arena.field, align 8",
        ]
    elif code.arena:
        memory.append(f"  %arena = alloca [{code.arena} x i8], align 64")
    if long or code.polls:
        memory.append("  %held = alloca ptr, align 8")
    return module_of(code, f"define i32 @kernel(ptr %given, ptr %tools) #0 {{\n{code.body()}\n}}"), code.scratch


def _interrupt_check() -> str:
    """``interrupted(tools, held)``: let other threads of Python run and look at signals; whether a handler raised."""
    w = Flow()
    w.start("entry")

    def tool(number: int) -> str:
        return w.value(f"load ptr, ptr {w.advance_address('%tools', number, 8)}, align 8")

    w.line(f"call void {tool(1)}(ptr {w.value('load ptr, ptr %held, align 8')})")
    raised = w.value(f"call i32 {tool(2)}()")
    w.returns(w.value(f"icmp ne i32 {raised}, 0"), "i1 true")
    w.line(f"store ptr {w.value(f'call ptr {tool(0)}()')}, ptr %held, align 8")
    w.line("ret i1 false")
    return f"define internal i1 @interrupted(ptr %tools, ptr %held) noinline #0 {{\n{w.body()}\n}}"


def _check_operands(code: Code, operands: Iterable[int]) -> None:
    """Return 1 unless these operands are in C order, aligned, and of this machine's byte order."""
    good = "true"
    for k in operands:
        flags = code.value(f"load i32, ptr {code.advance_address(f'%array{k}', 1, _FLAGS)}, align 4")
        fits = code.value(f"icmp eq i32 {code.value(f'and i32 {flags}, {_FIT}')}, {_FIT}")
        dtype = code.value(f"load ptr, ptr {code.advance_address(f'%array{k}', 1, _TYPE)}, align 8")
        order = code.value(f"load i8, ptr {code.advance_address(dtype, 1, _ORDER)}, align 1")
        native = code.value(f"icmp ne i8 {order}, {_SWAPPED}")
        good = code.value(f"and i1 {good}, {code.value(f'and i1 {fits}, {native}')}")
    code.returns(code.value(f"xor i1 {good}, true"), "i32 1")


def _count_ops(program: Program) -> dict[Any, int]:
    """How often each op occurs, in inner programs too."""
    found: dict[Any, int] = {}
    for eqn in program.equations:
        found[eqn.op] = found.get(eqn.op, 0) + 1
        for _, inner in subprograms(eqn.params):
            for op, n in _count_ops(inner).items():
                found[op] = found.get(op, 0) + n
    return found


def _endless(program: Program) -> bool:
    """Whether it has a loop whose length is not known."""
    for eqn in program.equations:
        region = region_of(eqn)
        if isinstance(region, Loop) and region.length is None:
            return True
        if any(_endless(inner) for _, inner in subprograms(eqn.params)):
            return True
    return False


def _small_type(*types: ShapedArray, program: Program, patient: bool) -> tuple[ShapedArray, ...]:
    return program.out_types


def _small_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> SmallKernel:
    updating = _operands_updated(params["program"], env.spread)
    return (UpdatingKernel if updating else SmallKernel)(env, params["program"], params["patient"])


def _operands_updated(program: Program, spread: Spread) -> tuple[int, ...]:
    """The positions of operands that are so large, on such devices, that results which update windows of them lie there."""
    large = [
        v
        for v in program.outputs
        if isinstance(v, Var) and spread.parts(v.aval) * _nbytes(v.aval.shape, v) >= costs.SMALL_POOLED_FROM
    ]
    return tuple(
        i
        for i, x in enumerate(program.inputs)
        if any(x.aval.shape == v.aval.shape and updates(program, [x], [v], spread)[0] for v in large)
    )


def _small_writes_over(params: Params) -> tuple[int, ...]:
    return _operands_updated(params["program"], ALONE)


small = define_op(
    "small", type_rule=_small_type, compile=_small_compile, multiple_results=True, writes_over=_small_writes_over
)
