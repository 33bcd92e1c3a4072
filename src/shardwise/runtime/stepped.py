"""The stepped executor: a per-device Program run one device at a time on concrete arrays, switching at collectives.

It knows nothing of blocks: each device is a coroutine with its own arrays and its own place in the grid, and collectives
are exchanges between lists of arrays (`shardwise.runtime.exchange`). So it checks the batched executor, and shows what
every single device does.

Comes in: the same program and blocks as `Plan`. Goes out: the same blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import physical
from shardwise.base.errors import JaxRuntimeError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray
from shardwise.ir import Atom, Equation, Literal, Program, ShapedArray, Var, subprograms, unwrap_op
from shardwise.runtime.env import Env
from shardwise.runtime.plan import kernel_of
from shardwise.runtime.rendezvous import CollectiveCall, Place, Rendezvous

if TYPE_CHECKING:
    from shardwise.engine.executable import Executable

Steps = Generator[CollectiveCall, Ndarray, Any]


class NeedsGridError(JaxRuntimeError):
    """A kernel is written for blocks with grid dims."""


@dataclass(frozen=True)
class DeviceEnv(Env):
    """The environment of a kernel on one device: the grid, and the device's own coordinates. Blocks have no grid dims."""

    coordinates: tuple[int, ...] = ()

    @property
    def lead(self) -> int:
        """Leading dims of every operand: vmap axes only."""
        return self.extra

    def dim(self, axis: str) -> int:
        """Not available: a single device's arrays have no dims for the grid."""
        raise NeedsGridError(f"a kernel that runs on one device asked for the block dim of mesh axis {axis!r}")

    def index(self, axes: tuple[str, ...]) -> np.ndarray:
        """int32 `extra * 1`: this device's row-major position along `axes`."""
        return np.full((1,) * self.lead, self.position(axes), np.int32)

    def position(self, axes: Sequence[str]) -> int:
        """This device's row-major position along `axes`."""
        place = 0
        for a in axes:
            place = place * self.size(a) + self.coordinates[self.axis_names.index(a)]
        return place

    @property
    def place(self) -> Place:
        """The coordinates with the axes' names."""
        return frozenset(zip(self.axis_names, self.coordinates, strict=True))


# -- one device ------------------------------------------------------------------------------------------------------------


def device_steps(program: Program, values: Sequence[Ndarray], env: DeviceEnv) -> Steps:
    """Run a program on one device's arrays: yields each collective call, is sent its result, returns the outputs."""
    known: dict[Var, Ndarray] = dict(zip(program.inputs, values, strict=True))

    def read(atom: Atom) -> Ndarray:
        return atom.value if isinstance(atom, Literal) else known[atom]

    for eqn in program.equations:
        outs = yield from equation_steps(eqn, [read(a) for a in eqn.inputs], env)
        for var, out in zip(eqn.outputs, outs, strict=True):
            known[var] = _check_output(eqn, var, out)
    return [read(a) for a in program.outputs]


def equation_steps(eqn: Equation, operands: Sequence[Ndarray], env: DeviceEnv) -> Steps:
    """Run one equation on one device's arrays; returns the list of its results."""
    op, params, mapped = unwrap_op(eqn.op, eqn.params)
    if op.collective is not None:
        alone = op.collective.alone
        if alone is not None and not mapped:
            return [alone(env.position(params["axes"]), operands, params)]
        out = yield CollectiveCall(op, tuple(operands), params, eqn.source, mapped)
        return list(out) if op.multiple_results else [out]
    if mapped and any(axes_used(p) for _, p in subprograms(params)):
        return (yield from _element_steps(eqn, operands, env))
    op, params = eqn.op, eqn.params
    if op.inline is not None:
        return (yield from device_steps(op.inline(eqn), operands, env))
    if op.steps is not None:
        return (yield from op.steps(eqn, operands, lambda program, values: device_steps(program, values, env)))
    if op.absorbs is not None and params.get("sum_axes"):
        part = np.asarray(op.block_kernel(env, *operands, **{**params, "sum_axes": ()}))
        reduction = {"axes": params["sum_axes"], "kind": op.reduction_of(params), "groups": None}
        return [(yield CollectiveCall(op.absorbs, (part,), reduction, eqn.source))]
    if op.ufunc is not None:
        return [op.ufunc_for([a.aval.dtype for a in eqn.inputs])(*operands)]  # type: ignore[misc]
    if op.kernel is None:
        return _on_grid(eqn, operands, env)
    try:
        out = op.kernel(env, *operands, **params)
    except NeedsGridError:
        return _on_grid(eqn, operands, env)
    return list(out) if op.multiple_results else [out]


@recent(4096)
def axes_used(program: Program) -> frozenset[str]:
    """The mesh axes over which collectives of a program exchange values, without those that it binds itself."""
    used: set[str] = set()
    for eqn in program.equations:
        op, params, _ = unwrap_op(eqn.op, eqn.params)
        if op.collective:
            used.update(params["axes"])
        for _, inner in subprograms(params):
            used |= axes_used(inner) - (params.get("manual") or frozenset())
    return frozenset(used)


def _on_grid(eqn: Equation, operands: Sequence[Ndarray], env: DeviceEnv) -> list[Ndarray]:
    """An op whose kernel is made for a whole grid: it runs on this device's arrays, and its part of the result counts."""
    op = eqn.op
    grid = Env(env.axis_names, env.axis_sizes, env.extra)
    ones = (1,) * len(env.axis_names)
    out = kernel_of(eqn, grid)(*[x.reshape(ones + x.shape) for x in operands])
    outs = out if op.multiple_results else (out,)
    return [_own_part(np.asarray(o), env.coordinates) for o in outs]


def _own_part(block: Ndarray, coordinates: tuple[int, ...]) -> Ndarray:
    return block[tuple(i if n > 1 else 0 for n, i in zip(block.shape, coordinates, strict=False))]


def _check_output(eqn: Equation, var: Var, out: Any) -> Ndarray:
    out = np.asarray(out)
    if out.shape != var.aval.shape or out.dtype != physical(var.aval.dtype):
        raise JaxRuntimeError(f"{eqn}: on one device the result is {out.dtype}{list(out.shape)}")
    return out


# -- mapped ops ----------------------------------------------------------------------------------------------------------


def _element_steps(eqn: Equation, operands: Sequence[Ndarray], env: DeviceEnv) -> Steps:
    """A mapped op whose body meets other devices: element by element of the mapped dim."""
    params = eqn.params
    mapped, rows = params["mapped"], []
    ins = [Var(_element(a.aval)) if m else Var(a.aval) for a, m in zip(eqn.inputs, mapped, strict=True)]
    outs = tuple(Var(_element(v.aval)) for v in eqn.outputs)
    inner = Equation(params["mapped_op"], tuple(ins), outs, dict(params["inner"]), eqn.source)
    for i in range(params["size"]):
        row = yield from equation_steps(inner, [x[i] if m else x for x, m in zip(operands, mapped, strict=True)], env)
        rows.append(row)
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


def _element(aval: ShapedArray) -> ShapedArray:
    return aval.update(shape=aval.shape[1:])


# -- all devices -----------------------------------------------------------------------------------------------------------


class SteppedPlan:
    """A per-device program run device by device. `run(*blocks)` computes what `Plan.run` does."""

    __slots__ = ("env", "program", "source")

    def __init__(self, program: Program, env: Env) -> None:
        self.program = program
        self.env = env
        self.source = str(program)

    def run(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        """The program's outputs as blocks; raises JaxRuntimeError if a value that must be the same everywhere is not."""
        with np.errstate(all="ignore"):  # infinities and NaNs are results
            return self._run(blocks)

    def _run(self, blocks: Sequence[Ndarray]) -> tuple[Ndarray, ...]:
        env, program = self.env, self.program
        devices = [DeviceEnv(env.axis_names, env.axis_sizes, 0, at) for at in np.ndindex(*env.axis_sizes)]
        rendezvous = Rendezvous(dict(zip(env.axis_names, env.axis_sizes, strict=True)))
        places = [d.place for d in devices]
        number = {place: i for i, place in enumerate(places)}
        steps = [device_steps(program, [_own_part(b, d.coordinates) for b in blocks], d) for d in devices]
        outputs: list[list[Ndarray]] = [[] for _ in devices]
        ready: deque[tuple[int, Any]] = deque((i, None) for i in range(len(devices)))
        while ready:
            i, value = ready.popleft()
            try:
                call = steps[i].send(value)
            except StopIteration as done:
                outputs[i] = done.value
                rendezvous.end(places[i])
                continue
            ready.extend((number[p], result) for p, result in rendezvous.arrive(places[i], call))
        if rendezvous.waiting:
            raise rendezvous.stuck_error()
        return tuple(self._join_parts(k, [outs[k] for outs in outputs]) for k in range(len(program.outputs)))

    def _join_parts(self, number: int, parts: Sequence[Ndarray]) -> Ndarray:
        """The block of one output: extent n along the axes over which its type varies, 1 along the others."""
        atom = self.program.outputs[number]
        sizes = self.env.axis_sizes
        block = np.stack(parts).reshape((*sizes, *parts[0].shape))
        varying = frozenset() if isinstance(atom, Literal) else atom.aval.vma
        for d, axis in enumerate(self.env.axis_names):
            if axis in varying or sizes[d] == 1:
                continue
            first = block.take([0], d)
            if (
                np.ascontiguousarray(np.broadcast_to(first, block.shape)).tobytes()
                != np.ascontiguousarray(block).tobytes()
            ):
                raise JaxRuntimeError(
                    f"{self.program.name}: output {number} ({atom.aval.str_short()}) should be the same on all devices "
                    f"along {axis!r}, but is not"
                )
            block = first
        return block


def run_stepped(executable: Executable, args: Sequence[Any]) -> tuple[Ndarray, ...]:
    """The output blocks of a compiled program on these arguments, computed device by device."""
    return SteppedPlan(executable.folded_program, executable.env).run(*executable.blocks(args))
