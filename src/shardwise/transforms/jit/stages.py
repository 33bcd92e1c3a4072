"""Ahead-of-time compilation: trace, lower and compile as separate steps, each with an object to inspect.

In: a jitted function, and arguments or their `ShapeDtypeStruct`s. Out: `Traced` (a program), `Lowered` (the
program with layouts), and from that `Compiled` (`compiled.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardwise.base import config
from shardwise.engine.array import ArrayImpl
from shardwise.engine.eager import literal_signature
from shardwise.engine.signature import Signature, signature
from shardwise.ir import Literal, Program
from shardwise.ir.references import Reference, UndeclaredReferenceError, call_closing_over
from shardwise.sharding import Sharding, SingleDeviceSharding
from shardwise.sharding.backend import default_device
from shardwise.sharding.device import Device
from shardwise.transforms import reports
from shardwise.transforms.jit.abstract import Abstract, bind_abstract, references_made, struct_of
from shardwise.transforms.jit.abstract_meshes import platform_devices
from shardwise.transforms.jit.compiled import Compiled
from shardwise.transforms.jit.compiled_call import compile_call
from shardwise.transforms.jit.entry import Entry
from shardwise.transforms.jit.jit_layouts import argument_orders
from shardwise.transforms.jit.references import ReferenceArgument
from shardwise.transforms.jit.stage import OutInfo, ReferencePassing, Stage, strong_struct
from shardwise.transforms.tracing import BoundCall, check_compiler_options

if TYPE_CHECKING:
    from shardwise.transforms.jit.traced_call import TracedCall
    from shardwise.transforms.jit.wrapped import JitWrapped
    from shardwise.transforms.programs.jaxpr_views import ClosedJaxpr


def _leaf_signature(x: Any) -> Signature:
    if isinstance(x, (ArrayImpl, Abstract)):
        return x._sig
    if isinstance(x, Literal):
        return literal_signature(x)
    return signature(x.aval, SingleDeviceSharding(default_device()), False)


def trace_call(wrapped: JitWrapped[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    """Trace a jitted function for these arguments, which may be ShapeDtypeStructs."""
    try:
        call = bind_abstract(wrapped, args, kwargs)
        sigs = [_leaf_signature(x) for x in call.leaves]
        traced_call, placed_sigs, outs = wrapped.prepare(call, sigs)
    except (ReferenceArgument, UndeclaredReferenceError) as error:
        if wrapped.over is not None:
            raise
        closed_references, recorded_call = (
            (error.references, error.recorded) if isinstance(error, UndeclaredReferenceError) else ((), None)
        )
        args, kwargs = references_made((args, kwargs))
        return call_closing_over(
            closed_references, lambda closed: _trace_over_values(wrapped, args, kwargs, closed), recorded_call
        )
    return Traced(wrapped, call, sigs, placed_sigs, traced_call, outs)


def _trace_over_values(
    wrapped: JitWrapped[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], closed: Sequence[Reference]
) -> Traced:
    """The trace of a call with references, as a function of their arrays."""
    form, positional, keywords, _ = wrapped.bound_over_values(args, kwargs, closed)
    traced_stage = trace_call(form, tuple(positional), keywords)
    traced_stage.over = ReferencePassing(tuple(closed))
    return traced_stage


class Traced(Stage):
    """A function traced for one signature; `jaxpr` is its program."""

    def __init__(
        self,
        wrapped: JitWrapped[..., Any],
        call: BoundCall,
        sigs: list[Signature],
        placed: list[Signature],
        traced: TracedCall,
        outs: Sequence[Sharding | None],
    ) -> None:
        super().__init__(
            call.in_tree,
            [s.aval for s in placed],
            call.donated_positions(wrapped._options.args),
            traced.out_tree,
            traced.program.out_types,
            traced.program.name,
            outs,
        )
        self._call = call
        self._wrapped = wrapped
        self._sigs = sigs
        self._traced = traced

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """The program, with the values it captured."""
        from shardwise.transforms.programs.jaxpr_views import ClosedJaxpr  # start-up time

        return ClosedJaxpr(self._traced.program, self._traced.consts)

    @property
    def out_info(self) -> Any:
        """The results' types, as a tree; OutInfos have only shardings from explicit types here."""
        structs = config.dialect.jit.out_info_is_struct
        return super().out_info if structs else self._results(lambda t, _: OutInfo.of(t))

    def eval_shape(self) -> Any:
        """The tree that the function's own `eval_shape` returns: ShapeDtypeStructs with the shardings of out_shardings."""
        return self._results(struct_of)

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """Lay the program out over the devices of its arguments; raises if they disagree.

        Args:
            lowering_platforms: one platform. Arguments without devices are lowered for devices of that platform, of the kind that their
                AbstractMesh names: `compile()` then reports the program's needs there, and `compile(device_assignment=...)` makes a
                program that runs.

        Raises:
            ValueError: only AbstractMeshes are given, and no platform.
            NotImplementedError: several platforms, or another platform than that of the arguments' devices.
        """
        devices = None
        if lowering_platforms is not None:
            named_devices = self._wrapped._asked.named_devices(
                self._sigs, self._wrapped._asked.of_arguments(self._call)
            )
            devices = platform_devices(lowering_platforms, named_devices, self._wrapped._asked.abstract(self._call))
        return Lowered(self, self.compiled_entry(devices))

    def compiled_entry(
        self, devices: tuple[Device, ...] | None = None, sigs: Sequence[Signature] | None = None
    ) -> Entry:
        """The call compiled for `devices`, which replace AbstractMeshes, and for arguments of other signatures where these are given."""
        given = self._sigs if sigs is None else list(sigs)
        return compile_call(self._wrapped, self._call, given, devices, runs=False)


class Lowered(Stage):
    """A program laid out over devices: the sharding of each value and every collective are known."""

    def __init__(self, traced: Traced, entry: Entry) -> None:
        super().__init__(
            traced._tree,
            traced._avals,
            traced.donate_argnums,
            traced.out_tree,
            traced._out_avals,
            traced.fun_name,
            traced._chosen,
        )
        self._traced = traced
        self.over = traced.over
        self._entry = entry
        self._names: Sequence[str] = traced._traced.names
        self._has_statics = bool(traced._call.statics.given)
        self._orders = argument_orders(traced._wrapped._asked.layouts(traced._call), traced._sigs)

    @property
    def out_info(self) -> Any:
        """The results' types, as a tree; those on explicit axes have the shardings of the mesh in use."""
        if not config.dialect.jit.out_info_is_struct:
            return super().out_info
        out_shardings = [
            s.sharding if chosen is None and t.mesh is not None and t.mesh.explicit_axes else chosen
            for t, chosen, s in zip(self._out_avals, self._chosen, self._entry.executable.out_sigs, strict=True)
        ]
        return self._as_results(list(map(strong_struct, self._out_avals, out_shardings)))

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The global program with the layout of every value; the first line is the mesh. `debug_info` adds source lines."""
        self._check_dialect(dialect)
        executable = self._entry.executable
        return f"# {reports.grid_text(executable)}\n{reports.program_text(reports.program_with_layouts(executable), debug_info)}"

    def compiler_ir(self, dialect: str | None = None) -> Program:
        """The global program, with layouts in its types."""
        self._check_dialect(dialect)
        return reports.program_with_layouts(self._entry.executable)

    def _check_dialect(self, dialect: str | None) -> None:
        if dialect in ("stablehlo", "hlo", "mhlo"):
            raise NotImplementedError(
                f"there is no {dialect} here: nothing passes through XLA. Leave dialect out for the program's own text."
            )
        if dialect not in (None, "shardwise"):
            raise ValueError(f"unknown dialect: {dialect!r}. Leave it out, or say 'shardwise'.")

    def cost_analysis(self) -> dict[str, float]:
        """'flops', 'transcendentals' and 'bytes accessed' of the global program."""
        return reports.cost_of(self._entry.executable.program)

    def explain(self, *, width: int | None = None) -> reports.Explanation:
        """The layout of each value, and each collective with its bytes per device and the op and line that caused it.

        The text begins with a summary. The object also has the data: `collectives`, `memory`, `totals`, `table`, `diff`, `save`. Lines are
        at most as wide as the terminal, or `width` characters.
        """
        return reports.explanation_of(self._entry.executable, self._input_names(), False, width)

    def entry_of(self, values: Sequence[Any]) -> Entry:
        """The call compiled for arguments like these where copies of some of them differ: devices compute with their own."""
        sigs = [
            x._sig if isinstance(x, ArrayImpl) and x._sig.varies else sig
            for x, sig in zip(values, self._traced._sigs, strict=True)
        ]
        return self._traced.compiled_entry(self._entry.executable.grid.devices, sigs)

    def _input_names(self) -> list[str]:
        entry = self._entry
        return [f"captured constant {i}" for i in range(len(entry.consts))] + [
            self._names[i] or f"args[{i}]" for i in entry.kept
        ]

    def compile(self, compiler_options: Any = None, *, device_assignment: Sequence[Device] | None = None) -> Compiled:
        """The callable for this signature.

        Args:
            compiler_options: options by name; those of XLA change nothing.
            device_assignment: the devices that replace AbstractMeshes.

        Raises:
            ValueError: the arguments lie on other devices, or an AbstractMesh has another size.
        """
        check_compiler_options(compiler_options)
        if device_assignment is None:
            return Compiled(self)
        devices = tuple(device_assignment)
        entry = self._traced.compiled_entry(devices)
        if entry.executable.grid.devices != devices:
            raise ValueError(
                f"device_assignment={devices}, but the program was lowered for {entry.executable.grid.devices}. Leave it out, or give "
                "structs over an AbstractMesh."
            )
        return Compiled(Lowered(self._traced, entry))
