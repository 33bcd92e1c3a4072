"""Ahead-of-time compilation: trace, lower and compile as separate steps, each with an object to inspect.

In: a jitted function, and arguments or their `ShapeDtypeStruct`s. Out: `Traced` (a program), `Lowered` (the
program with layouts), `Compiled` (a callable for that one signature, with its shardings, costs and per-device program).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardwise.base import config
from shardwise.base.tree import PyTreeDef, equality_errors, keystr, tree_flatten, tree_map, tree_unflatten
from shardwise.engine.array import ArrayImpl
from shardwise.engine.eager import literal_signature
from shardwise.engine.executable import Executable
from shardwise.engine.ordered import in_order
from shardwise.engine.signature import Signature, signature
from shardwise.ir import Literal, Program, ShapedArray, Tracer
from shardwise.ir.references import Reference, Undeclared, closing_over
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import (
    GSPMDSharding,
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
    Tiling,
    sharding_like,
)
from shardwise.sharding.device import Device, default_device
from shardwise.sharding.formats import Layout, format_of
from shardwise.transforms import reports
from shardwise.transforms.jit.abstract import Abstract, bind_abstract, struct_of
from shardwise.transforms.jit.abstract_meshes import platform_devices
from shardwise.transforms.jit.entry import Entry, as_array_impl
from shardwise.transforms.jit.jit_layouts import argument_orders
from shardwise.transforms.jit.jit_shardings import with_signature
from shardwise.transforms.jit.references import ReferenceArgument, passed
from shardwise.transforms.tracing import BoundCall, check_compiler_options

if TYPE_CHECKING:
    from shardwise.transforms.jit.wrapped import JitWrapped, TracedCall
    from shardwise.transforms.programs.jaxpr_views import ClosedJaxpr

ArgsKwargs = tuple[tuple[Any, ...], dict[str, Any]]


def _leaf_signature(x: Any) -> Signature:
    if isinstance(x, (ArrayImpl, Abstract)):
        return x._sig
    if isinstance(x, Literal):
        return literal_signature(x)
    return signature(x.aval, SingleDeviceSharding(default_device()), False)


@dataclass(frozen=True)
class OutInfo:
    """A leaf of the results in JAX 0.5.3: shape, dtype, and the sharding if the call or the type gives one."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: Sharding | None = None

    @classmethod
    def of(cls, aval: ShapedArray, sharding: Sharding | None = None) -> OutInfo:
        """The OutInfo of a result of type `aval`."""
        struct = struct_of(aval, sharding)
        return cls(struct.shape, struct.dtype, struct.sharding)


@dataclass(frozen=True)
class ArgInfo:
    """A leaf of the arguments: its type, and whether it is donated."""

    _aval: ShapedArray
    donated: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self._aval.shape

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self._aval.dtype


def trace_call(wrapped: JitWrapped[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
    """Trace a jitted function for these arguments, which may be ShapeDtypeStructs."""
    try:
        call = bind_abstract(wrapped, args, kwargs)
        sigs = [_leaf_signature(x) for x in call.leaves]
        traced, placed, outs = wrapped.prepare(call, sigs)
    except (ReferenceArgument, Undeclared) as error:
        if wrapped.over is not None:
            raise
        closed = error.references if isinstance(error, Undeclared) else ()
        return closing_over(closed, lambda closed: _trace_over_values(wrapped, args, kwargs, closed))
    return Traced(wrapped, call, sigs, placed, traced, outs)


def _trace_over_values(
    wrapped: JitWrapped[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], closed: Sequence[Reference]
) -> Traced:
    """The trace of a call with references, as a function of their arrays."""
    form, positional, keywords, _ = wrapped.bound_over_values(args, kwargs, closed)
    traced = trace_call(form, tuple(positional), keywords)
    traced.over = Passing(tuple(closed))
    return traced


@dataclass(frozen=True)
class Passing:
    """How a function of the arrays of references is called: `closed` are those that the user's function closes over."""

    closed: tuple[Reference, ...]

    def call(self, compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call with the arrays of references, and write their last values back."""
        positional, keywords, references = passed(args, range(len(args)), kwargs, self.closed)
        if self.closed:
            positional.append([r.taken() for r in self.closed])
        result, last = compiled(*positional, **keywords)
        for reference, value in zip((*references, *self.closed), last, strict=True):
            reference.replace(value)
        return result


class Stage:
    """The base of the three stages: the signature of the call."""

    over: Passing | None = None

    def __init__(
        self,
        in_tree: PyTreeDef,
        avals: Sequence[ShapedArray],
        donated: Sequence[int],
        out_tree: PyTreeDef,
        out_avals: Sequence[ShapedArray],
        name: str,
        chosen: Sequence[Sharding | None],
    ) -> None:
        self._avals = tuple(avals)
        self._out_avals = tuple(out_avals)
        self._chosen = tuple(chosen)  # the resolved out_shardings
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.donate_argnums = tuple(donated)
        self.fun_name = name

    @property
    def in_avals(self) -> ArgsKwargs:
        """The arguments' types, as (args, kwargs) without static arguments."""
        return tree_unflatten(self.in_tree, self._avals)

    @property
    def out_avals(self) -> Any:
        """The results' types, as a tree."""
        return self._as_results(self._out_avals)

    def _as_results(self, leaves: Sequence[Any]) -> Any:
        """The tree of results, without the arrays of references."""
        results = tree_unflatten(self.out_tree, leaves)
        return results if self.over is None else results[0]

    def _results(self, info: Callable[[ShapedArray, Sharding | None], Any]) -> Any:
        """The tree of `info(type, sharding)` over the results; the sharding comes from out_shardings or is None."""
        return self._as_results(list(map(info, self._out_avals, self._chosen)))

    @property
    def out_info(self) -> Any:
        """The results' types and out_shardings, as a tree of ShapeDtypeStructs or, by dialect, OutInfos."""
        return self._results(struct_of if config.dialect.jit.out_info_is_struct else OutInfo.of)

    @property
    def args_info(self) -> ArgsKwargs:
        """An ArgInfo (type, donated) per argument leaf, as (args, kwargs)."""
        infos = [ArgInfo(t, i in self.donate_argnums) for i, t in enumerate(self._avals)]
        return tree_unflatten(self.in_tree, infos)


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
            call.donated(wrapped._options.args),
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
        """The same tree as the function's own `eval_shape` returns: ShapeDtypeStructs with the shardings of out_shardings."""
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
        for leaf in self._call.leaves:
            if isinstance(leaf, Tracer):
                raise TypeError(
                    f"lower() needs arrays or ShapeDtypeStructs, got a traced array ({leaf.aval.str_short()})."
                )
        devices = None
        if lowering_platforms is not None:
            named = self._wrapped.named_devices(self._sigs, self._wrapped._in_shardings(self._call))
            devices = platform_devices(lowering_platforms, named, self._wrapped.abstract_shardings(self._call))
        return Lowered(self, self.compiled_entry(devices))

    def compiled_entry(self, devices: tuple[Device, ...] | None = None) -> Entry:
        """The call compiled for `devices`, which replace AbstractMeshes."""
        return self._wrapped._compile(self._call, self._sigs, devices, runs=False)


class Lowered(Stage):
    """A program laid out over devices: the sharding of each value and every collective are known."""

    def __init__(self, traced: Traced, entry: Entry) -> None:
        super().__init__(
            traced.in_tree,
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
        self._orders = argument_orders(traced._wrapped.input_layouts(traced._call), traced._sigs)

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


class Compiled(Stage):
    """A function compiled for one signature. Call it without the static arguments.

    A call raises TypeError for another tree of arguments or other types, and ValueError for a committed argument whose
    layout is not the compiled one; each lists every mismatch. Uncommitted arguments are moved.
    """

    def __init__(self, lowered: Lowered) -> None:
        super().__init__(
            lowered.in_tree,
            lowered._avals,
            lowered.donate_argnums,
            lowered.out_tree,
            lowered._out_avals,
            lowered.fun_name,
            lowered._chosen,
        )
        self.over = lowered.over
        self._entry = lowered._entry
        self._entry.finish()
        self._names = lowered._names
        self._lowered = lowered
        self._known: dict[tuple[Any, ...], list[tuple[int, Signature]]] = {}
        executable = self._entry.executable
        own = executable.in_sigs[len(self._entry.consts) :]
        self._in_shardings: list[Sharding | None] = [None] * len(self._avals)
        for i, sig in zip(self._entry.kept, own, strict=True):
            self._in_shardings[i] = input_sharding(executable, sig)

    # -- inspection --------------------------------------------------------------------------------------------------------------

    @property
    def input_shardings(self) -> ArgsKwargs:
        """(args, kwargs) with a sharding for each argument, None for unused arguments."""
        return tree_unflatten(self.in_tree, self._in_shardings)

    @property
    def output_shardings(self) -> Any:
        """A sharding for each result."""
        return self._as_results([s.sharding for s in self._entry.executable.out_sigs])

    @property
    def input_formats(self) -> ArgsKwargs:
        """(args, kwargs) with layout and sharding of each argument."""
        orders = self._lowered._orders
        formats = [format_of(t.ndim, s, o) for t, s, o in zip(self._avals, self._in_shardings, orders, strict=True)]
        return tree_unflatten(self.in_tree, formats)

    @property
    def output_formats(self) -> Any:
        """Layout and sharding of each result."""
        sigs = self._entry.executable.out_sigs
        orders = self._entry.orders or [None] * len(sigs)
        return self._as_results([format_of(s.aval.ndim, s.sharding, o) for s, o in zip(sigs, orders, strict=True)])

    def _check_orders(self, values: Sequence[Any]) -> None:
        wrong: list[str] = []
        for value, order, name in zip(values, self._lowered._orders, self._names, strict=False):
            if isinstance(value, ArrayImpl) and value.committed:
                default = tuple(range(value.ndim))
                own, wanted = value._sig.order or default, order or default
                if own != wanted:
                    wrong.append(
                        f"Argument {name} with shape {value.aval.str_short()}: Passed layout: {Layout(own)}, required layout: "
                        f"{Layout(wanted)}"
                    )
        if wrong:
            raise ValueError(
                "Computation was compiled for input layouts that disagree with the layouts of arguments passed to it. Here are the "
                f"{len(wrong)} mismatches: {'; '.join(wrong)}. Place them with device_put(x, Format(layout, sharding))."
            )

    @property
    def out_info(self) -> Any:
        """The results' ShapeDtypeStructs with their shardings."""
        sigs = self._entry.executable.out_sigs
        return self._as_results([struct_of(t, s.sharding) for t, s in zip(self._out_avals, sigs, strict=True)])

    def as_text(self) -> str:
        """The program that each device runs, with its collectives."""
        executable = self._entry.executable
        return f"# each of {reports.grid_text(executable)}\n{executable.folded_program}"

    def cost_analysis(self) -> dict[str, float]:
        """Per device: 'flops', 'transcendentals', 'bytes accessed', and 'collective bytes' sent."""
        executable = self._entry.executable
        return reports.cost_of(executable.folded_program, executable.transfers)

    def memory_analysis(self) -> reports.MemoryStats:
        """Bytes per device: arguments, results, temporaries, donated (alias), code, and the peak."""
        return reports.memory_stats(self._entry.executable, self._lowered._input_names())

    def runtime_executable(self) -> Executable:
        """The library's own object: program, layouts, transfers and the generated plan."""
        return self._entry.executable

    def explain(self, *, width: int | None = None) -> reports.Explanation:
        """Like `Lowered.explain`, with the time of each stage of compilation."""
        return reports.explanation_of(self._entry.executable, self._lowered._input_names(), True, width)

    # -- calls -------------------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with arguments of the compiled signature."""
        return self._run(*args, **kwargs) if self.over is None else self.over.call(self._run, args, kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise self._tree_error(args, kwargs)
        values = [as_value(x) for x in leaves]
        for x in values:
            if isinstance(x, Tracer):
                raise TypeError(
                    "Cannot apply JAX transformations to a function lowered and compiled for a particular signature. "
                    f"Detected argument of Tracer type {type(x)} ({x.aval.str_short()}). Call the jitted function instead."
                )
        key = tuple(x._sig if isinstance(x, ArrayImpl) else x.aval for x in values)
        moves = self._known.get(key)
        if moves is None:
            self._check_types(values)
            self._check_shardings(values)
            self._check_orders(values)
            for x in values:
                if isinstance(x, ArrayImpl):
                    x._check_alive()
            moves = self._known[key] = self._moves(values)
        entry = self._entry
        used = [values[i] for i in entry.kept]
        for k, sig in moves:
            used[k] = with_signature(as_array_impl(used[k]), sig)
        arguments: list[Any] = [*entry.consts, *used]
        outs = entry.executable.call(arguments)
        for i in entry.elsewhere([k for k, _ in moves]) if entry.donated else ():
            leaf = values[i]
            if isinstance(leaf, ArrayImpl):
                leaf.delete()
        if entry.orders is not None:
            outs = [in_order(x, o) for x, o in zip(outs, entry.orders, strict=True)]
        return tree_unflatten(self.out_tree, outs)

    def _moves(self, values: Sequence[Any]) -> list[tuple[int, Signature]]:
        entry = self._entry
        own = entry.executable.in_sigs[len(entry.consts) :]
        return [
            (k, sig)
            for k, (i, sig) in enumerate(zip(entry.kept, own, strict=True))
            if getattr(values[i], "_sig", None) is not sig
        ]

    def _tree_error(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        expected_args, expected_kwargs = tree_unflatten(self.in_tree, [0] * self.in_tree.num_leaves)
        zeros_args, zeros_kwargs = tree_map(lambda _: 0, (args, kwargs))
        problems = [
            f"at args{keystr(p)}, compiled for {a} but called with {b}, so {why}"
            for p, a, b, why in equality_errors(expected_args, zeros_args)
        ]
        problems += [
            f"at kwargs{keystr(p)}, compiled for {a} but called with {b}, so {why}"
            for p, a, b, why in equality_errors(expected_kwargs, zeros_kwargs)
        ]
        listed = "\n".join(f"    * {p}" for p in problems)
        more = self._lowered._has_statics and len(args) + len(kwargs) > len(expected_args) + len(expected_kwargs)
        hint = "\nStatic arguments must be left out of the call." if more else ""
        return TypeError(
            "Function compiled with input pytree does not match the input pytree it was called with. "
            f"There are {len(problems)} mismatches, including:\n{listed}{hint}"
        )

    def _check_types(self, values: Sequence[Any]) -> None:
        lines = []
        for name, want, x in zip(self._names, self._avals, values, strict=True):
            if want.shape != x.aval.shape or want.dtype != x.aval.dtype:
                lines.append(f"Argument '{name}' compiled with {_plain(want)} and called with {_plain(x.aval)}")
        if lines:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. Was enable_x64 set "
                "otherwise then? The mismatches are:\n" + "\n".join(lines)
            )

    def _check_shardings(self, values: Sequence[Any]) -> None:
        lines = []
        for name, want, x in zip(self._names, self._in_shardings, values, strict=True):
            if want is None or not isinstance(x, ArrayImpl) or not x.committed or x.sharding is want:
                continue
            if not want.is_equivalent_to(x.sharding, x.ndim):
                lines.append(
                    f"Argument {name} with shape {_plain(x.aval)}:\n  Passed sharding: {x.sharding}\n"
                    f"  Required sharding: {want}"
                )
        if lines:
            head = config.dialect.jit.compiled_for_others_text
            raise ValueError(
                f"{head} Here are the {len(lines)} mismatches:\n"
                + "\n".join(lines)
                + "\nMove the arguments with device_put, or compile for their shardings."
            )


def _plain(aval: ShapedArray) -> str:
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def input_sharding(executable: Executable, sig: Signature) -> Sharding:
    """The sharding of an argument of this signature: its own if committed, else replicated over the executable's devices."""
    grid = executable.grid
    if sig.devices == grid.devices and (sig.committed or len(grid.devices) == 1):
        return sig.sharding
    if len(grid.devices) == 1:
        return SingleDeviceSharding(grid.devices[0])
    whole = Tiling(grid.sizes, grid.names, ((),) * sig.aval.ndim)
    for other in (*executable.in_sigs, *executable.out_sigs):
        if other.devices == grid.devices and isinstance(other.sharding, NamedSharding):
            return sharding_like(other.sharding, whole)
    return GSPMDSharding.get_replicated(grid.devices)
