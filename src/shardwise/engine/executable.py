"""`Executable`: a lowered program, which is scheduled and gets its call when it is first needed.

Comes in: a partitioned `Module`, its `Context`, and the signatures of arguments and results. Goes out: an Executable whose `call`
takes and returns Arrays. It keeps the device program, from which `explain` gets the transfers.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.collector import pause_collector
from shardwise.base.dtypes import issubdtype
from shardwise.base.errors import about
from shardwise.base.events import COMPILE_EVENT, record_event_duration_secs
from shardwise.base.generated import define
from shardwise.base.shapes import Ndarray
from shardwise.engine.array import ArrayImpl, nothing
from shardwise.engine.guards import refuse_execution
from shardwise.engine.lowered import LoweredProgram
from shardwise.engine.signature import Signature
from shardwise.ir import Literal, Program, subprograms
from shardwise.ir.digest import encode_params
from shardwise.ir.program import source_text
from shardwise.passes import Context, Module, PartForm, schedule_module
from shardwise.runtime import costs
from shardwise.runtime.blocks import BlockForm, MeshOnGrid
from shardwise.runtime.env import Env
from shardwise.runtime.machine import llvm
from shardwise.runtime.memory import out_of_memory
from shardwise.runtime.plan import Plan
from shardwise.runtime.processes import FEW, MASK, AnnouncedProgram, history
from shardwise.runtime.stepped import SteppedPlan
from shardwise.sharding import PmapSharding
from shardwise.sharding.device import install_kept
from shardwise.sharding.ownership import takes_part

new_array = ArrayImpl.__new__
Call = Callable[[Sequence[ArrayImpl | Literal]], list[ArrayImpl]]


class Executable(LoweredProgram):
    """A program compiled for arguments of given signatures. It is lowered when it is made, and scheduled by `finish`, or when its
    `plan` or `call` is first needed.
    """

    __slots__ = ("_announced", "_apart", "_forms", "_lowered", "_plan", "_written", "call", "kept")

    def __init__(
        self,
        in_sigs: Sequence[Signature],
        module: Module,
        context: Context,
        out_sigs: Sequence[Signature],
        seconds: dict[str, float],
        owned: Sequence[int] = (),
        names: Sequence[str] = (),
        observe: Callable[[Executable], Call] | None = None,
    ) -> None:
        """`module` is partitioned. `owned`: arguments that a call deletes, and whose buffers results may take; a call that raises keeps
        them, except those whose buffers are already taken. `names`: the arguments' names. `observe` replaces `call` when it is made.
        """
        super().__init__(in_sigs, module, context, out_sigs, seconds, owned, module.program)
        grid, in_dims = self.grid, self.in_dims
        forms: list[BlockForm | PartForm] = []
        for sig, dims in zip(in_sigs, in_dims, strict=True):
            if grid.kept_whole and sig.spans and not sig.kept_whole:
                sizes = dict(zip(grid.names, grid.sizes, strict=True))
                raise NotImplementedError(
                    f"each process keeps its part of an argument of type {sig.aval.str_short()} under {sig.sharding}, but the computation "
                    f"is one over the mesh {sizes}, among whose devices the processes form no grid, so that each keeps all parts. Put the "
                    "argument on that mesh first, with device_put, or order the mesh's devices as make_mesh does."
                )
            forms.append(grid.form(sig.aval.shape, dims) if sig.spans else grid.whole_form(sig.aval.shape, dims))
        # None: the argument's own block already has the form that the program needs.
        self._forms: list[BlockForm | PartForm | None] = [
            None if f is s.form else f for f, s in zip(forms, in_sigs, strict=True)
        ]
        self._plan: Plan | SteppedPlan | None = None
        self._apart: Plan | None = None
        self._lowered = module, context, tuple(names), observe
        self._announced = self._written = None
        self.call: Call = self._first_call

    @property
    def plan(self) -> Plan | SteppedPlan:
        """The program that runs, scheduled: where there is a `whole_program`, that one."""
        if self._plan is None:
            self.finish()
        assert self._plan is not None
        return self._plan

    @property
    def plan_of_devices(self) -> Plan | SteppedPlan:
        """The plan for devices without common memory: `plan`, or the one that a `whole_program` stands for."""
        if self.whole_program is None:
            return self.plan
        if self._apart is None:
            module, context, *_ = self._lowered
            self._apart = Plan(schedule_module(module, context, {}).program, context.env)
        return self._apart

    @property
    def env(self) -> Env:
        """The devices, as kernels know them."""
        return self._lowered[1].env

    def _first_call(self, args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
        self.finish()
        return self.call(args)

    @pause_collector
    def finish(self) -> None:
        """Schedule the program and write its call. Does nothing the second time."""
        if self._plan is not None:
            return
        seconds, grid, in_sigs = self.seconds, self.grid, self.in_sigs
        start, before = time.perf_counter(), sum(seconds.values())
        module, context, names, observe = self._lowered
        if self.whole_program is not None:
            module = replace(module, program=self.whole_program, device_program=self.whole_program)
            context = replace(context, grid=grid.one_device)
        checks = config.jax_debug_nans or config.jax_debug_infs
        if config.shardwise_stepped:
            plan = SteppedPlan(module.program, context.env)
        else:
            look_ahead(module.program)
            scheduled_program = schedule_module(module, context, seconds).program
            # An argument keeps its buffer if it is not in the program's form, or if results are checked for NaNs after the run.
            fits = self.whole_program is not None
            owned_inputs = () if grid.spans or checks else [i for i in self.owned if fits or self._forms[i] is None]
            plan = Plan(scheduled_program, context.env, owned_inputs)
        if grid.spans:  # all processes run this one program
            hosts = [i for i, sig in enumerate(in_sigs) if not sig.spans]
            self._announced = AnnouncedProgram(
                plan,
                grid.ranks,
                self.folded_program,
                self.name,
                names,
                self.program.num_consts,
                hosts,
                _layouts(self.out_sigs),
            )
        self._written = self._caller(plan, checks=checks) if takes_part(grid.devices) else None
        call = refuse_execution(self._written or self._call_without_devices, self.name, grid.spans)
        if checks:
            call = self._check_results(call, config.jax_debug_nans, config.jax_debug_infs)
        self.call = call
        self._plan = plan  # the last of all: another thread may ask whether this is done
        seconds["codegen"] = time.perf_counter() - start - (sum(seconds.values()) - before)
        record_event_duration_secs(COMPILE_EVENT, sum(seconds.values()), fun_name=f"jit({self.name})")
        if observe is not None:
            self.call = observe(self)

    def blocks(self, args: Sequence[ArrayImpl | Literal]) -> list[Ndarray]:
        """The arguments in the block form that the program needs."""
        out = []
        for x, form in zip(args, self._forms, strict=True):
            if type(x) is Literal:
                out.append(x.value if form is None else form.from_dense(x.value))
                continue
            assert isinstance(x, ArrayImpl)
            own = self._mesh_on_grid(x._sig)
            out.append(x.block if form is None else form.from_dense(x.dense) if own is None else own.on_grid(x.block))
        return out

    def _mesh_on_grid(self, sig: Signature) -> MeshOnGrid | None:
        """How blocks of an array whose copies differ lie on the program's grid; None for other arrays, and for plain data."""
        if not sig.varies or isinstance(sig.sharding, PmapSharding):
            return None
        assert sig.tiling is not None
        owners = self.grid.processes
        mesh = tuple([n for n in sig.tiling.mesh_shape if n != 1])
        return MeshOnGrid(mesh, self.grid.sizes, self.grid.sizes if owners is None else owners.extents)

    def _call_without_devices(self, args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
        """`call` in a process that owns none of the devices: it computes nothing, and returns empty results of the right types."""
        for x in args:
            if isinstance(x, ArrayImpl):
                x._check_alive()
        for i in self.owned:
            x = args[i]
            if isinstance(x, ArrayImpl):
                x.delete()
        return [nothing(sig) for sig in self.out_sigs]

    def _check_results(self, call: Any, nans: bool, infs: bool) -> Any:
        """`call`, raising FloatingPointError if a result holds a NaN (debug_nans) or an infinity (debug_infs)."""

        def checked_call(args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
            results = call(args)
            for x in results:
                if issubdtype(x.dtype, np.inexact):
                    for is_asked, test, what in ((nans, np.isnan, "nan"), (infs, np.isinf, "inf")):
                        if is_asked and test(x.block).any():
                            raise about(
                                "nan",
                                FloatingPointError(
                                    f"invalid value ({what}) encountered in {self._blame_op(args, test)}: a result of type "
                                    f"{x.aval.str_short()} holds it."
                                ),
                            )
            for i in self.owned:
                x = args[i]
                if isinstance(x, ArrayImpl):
                    x.delete()
            return results

        return checked_call

    def _blame_op(self, args: Sequence[ArrayImpl | Literal], test: Any) -> str:
        """The op that gave the first bad value, with its line, if it can be found out, and the program."""
        if self.grid.spans:  # others would have to look with this process
            return self.name
        from shardwise.engine.invalid import origin  # start-up time: nearly no run needs it

        _, context, *_ = self._lowered
        culprit = origin(self.folded_program, context.env, self.blocks(args), test)
        if culprit is None:
            return self.name
        line, program = (
            source_text(culprit.source),
            f", in {self.name}" if len(self.folded_program.equations) > 1 else "",
        )
        return f"{culprit.op.name}{f' at {line}' if line else ''}{program}"

    def single(self) -> Any:
        """`call` for a program with one result; it returns that result instead of a list."""
        self.finish()
        if self.call is self._written:
            return self._caller(self.plan, single=True)
        call = self.call
        return lambda args: call(args)[0]

    def _caller(self, plan: Plan | SteppedPlan, single: bool = False, checks: bool = False) -> Any:
        """`call(args) -> list of Arrays`, generated for this program: the dispatch path has no loops. `single`: it returns an Array.
        `checks`: results are checked after the call, which therefore keeps owned arguments.
        """
        names = [f"a{i}" for i in range(len(self.in_sigs))]
        announcement = self._announced
        meets = announcement is not None and announcement.meeting is not None
        constants: dict[str, Any] = {"run": plan.run if announcement is None else announcement.run}
        constants |= {"new": new_array, "ArrayImpl": ArrayImpl, "Literal": Literal, "out_of_memory": out_of_memory}
        lines = ["def call(args):"]
        if names:
            lines.append(f"    {', '.join(names)}, = args")
        have = "block" if self.whole_program is None else "dense"
        for i in range(len(names)):
            lines += self._argument_lines(i, have, constants)
        outs = [f"r{i}" for i in range(len(self.out_sigs))]
        blocks = ", ".join(f"b{i}" for i in range(len(names)))
        if announcement is not None:
            terms = []
            for i, sig in enumerate(self.in_sigs):
                if sig.spans:
                    terms.append(f"a{i}._origin")
                else:
                    constants[f"seen{i}"] = announcement.value_number(i)
                    terms.append(f"seen{i}(a{i}.value if type(a{i}) is Literal else a{i}.dense)")
            lines += [
                f"    terms = ({', '.join([str(announcement.number), *terms])},)",
                f"    origin = hash(terms) & {MASK}",
            ]
            constants |= {"told": announcement.told, "notes": history.notes, "shorten": history.shorten}
            lines += ["    notes.append((origin, told))", f"    if len(notes) > {FEW}: shorten()"]
            if meets:
                blocks = ", ".join(["origin, terms", *[f"b{i}" for i in range(len(names))]])
        owned_inputs = plan.owned if isinstance(plan, Plan) else ()
        if owned_inputs:  # only this list refers to the blocks
            lines += [f"    blocks = [{blocks}]", f"    del {blocks}"]
        lines.append("    try:")
        lines += [f"        if type(a{i}) is not Literal: a{i}.delete()" for i in owned_inputs]
        lines.append(f"        {', '.join(outs) + ', = ' if outs else ''}run({'blocks' if owned_inputs else blocks})")
        lines.append("    except BaseException as error:")
        lines += [f"        if type(a{i}) is not Literal: a{i}._{have} = blocks[{i}]" for i in owned_inputs]
        # An op may let NumPy make an array, which is refused by an error of NumPy's.
        lines.append("        if isinstance(error, MemoryError): raise out_of_memory(error) from None")
        lines.append("        raise")
        if not checks:
            lines += [f"    if type(a{i}) is not Literal: a{i}.delete()" for i in self.owned if i not in owned_inputs]
        for i in range(len(outs)):
            lines += self._result_lines(i, constants)
            if announcement is not None:
                lines.append(f"    x{i}._origin = origin + {i}")
        results = ", ".join(f"x{i}" for i in range(len(outs)))
        lines.append(f"    return {results}" if single else f"    return [{results}]")
        define("\n".join(lines), f"<call of {self.name}>", constants)
        return constants["call"]

    def _argument_lines(self, i: int, have: str, constants: dict[str, Any]) -> list[str]:
        """The lines of `call` that take the block, or the whole value, for the program from argument `i`."""
        form = self._forms[i]
        if form is None or have == "dense":
            return [
                f"    b{i} = a{i}.value if type(a{i}) is Literal else a{i}._{have}",
                f"    if b{i} is None: b{i} = a{i}.{have}",
            ]
        if (own := self._mesh_on_grid(self.in_sigs[i])) is not None:
            constants[f"form{i}"] = own.on_grid
            return [f"    b{i} = form{i}(a{i}.block)"]
        constants[f"form{i}"] = form.from_dense
        return [f"    b{i} = form{i}(a{i}.value if type(a{i}) is Literal else a{i}.dense)"]

    def _result_lines(self, i: int, constants: dict[str, Any]) -> list[str]:
        """The lines of `call` that make an Array of result i; adds what they name to `constants`."""
        sig = constants[f"s{i}"] = self.out_sigs[i]
        lines = [f"    x{i} = new(ArrayImpl)", f"    x{i}._sig = s{i}"]
        if self.whole_program is not None:
            return [*lines, f"    x{i}._dense = r{i}", f"    x{i}._block = x{i}._npy = x{i}._shards = None"]
        form = self.grid.form(sig.aval.shape, self.out_dims[i])
        if form is sig.form:
            return [*lines, f"    x{i}._block = r{i}", f"    x{i}._dense = x{i}._npy = x{i}._shards = None"]
        # The result's own mesh divides the devices in another way than the grid.
        if (own := self._mesh_on_grid(sig)) is not None:
            constants[f"block{i}"] = own.on_mesh
            return [*lines, f"    x{i}._block = block{i}(r{i})", f"    x{i}._dense = x{i}._npy = x{i}._shards = None"]
        cut = self.grid.kept_whole and not sig.kept_whole
        constants[f"dense{i}"] = _cutter_of(form, sig) if cut else form.to_dense
        return [*lines, f"    x{i}._dense = dense{i}(r{i})", f"    x{i}._block = x{i}._npy = x{i}._shards = None"]


def _cutter_of(form: BlockForm, sig: Signature) -> Callable[[Ndarray], Ndarray]:
    """A function from the block of a whole value to this process's part."""
    return lambda block: sig.part_of(form.to_dense(block))


def _layouts(sigs: Sequence[Signature]) -> str:
    return " ".join([encode_params((s.aval, s.sharding, s.committed)).hex() for s in sigs])


install_kept(executables=lambda: [x for x in gc.get_objects() if type(x) is Executable])


def look_ahead(program: Program) -> None:
    """Let the ops of a program, inner programs included, begin to load what their kernels will need (`Op.ahead`), and the compiler where
    loops over large values are likely to be made.
    """
    for eqn in program.equations:
        if any(v.aval.size >= costs.FUSED_FEWEST for v in eqn.outputs):
            llvm.prepare()
        if eqn.op.ahead is not None:
            eqn.op.ahead(tuple([a.aval for a in eqn.inputs]), eqn.params)
        for _, inner in subprograms(eqn.params):
            look_ahead(inner)
