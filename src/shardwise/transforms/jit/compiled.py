"""`Compiled`: a callable for one signature, with its shardings, costs and per-device program; the last of the stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shardwise.base import config
from shardwise.base.tree import equality_errors, keystr, tree_flatten, tree_map, tree_unflatten
from shardwise.engine.array import ArrayImpl
from shardwise.engine.executable import Executable
from shardwise.engine.ordered import in_order
from shardwise.engine.signature import Signature
from shardwise.ir import ShapedArray, Tracer
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import GSPMDSharding, NamedSharding, Sharding, SingleDeviceSharding, Tiling, sharding_like
from shardwise.sharding.formats import Format, Layout, format_of
from shardwise.transforms import reports
from shardwise.transforms.jit.entry import Entry, as_array_impl
from shardwise.transforms.jit.jit_shardings import with_signature
from shardwise.transforms.jit.stage import ArgsKwargs, Stage, strong_struct

if TYPE_CHECKING:
    from shardwise.transforms.jit.stages import Lowered


class Compiled(Stage):
    """A function compiled for one signature. Call it without the static arguments.

    A call raises TypeError for another tree of arguments or other types, and ValueError for a committed argument whose
    layout is not the compiled one; each lists every mismatch. Uncommitted arguments are moved.
    """

    def __init__(self, lowered: Lowered) -> None:
        super().__init__(
            lowered._tree,
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
        self._known: dict[tuple[Any, ...], tuple[Entry, list[tuple[int, Signature]]]] = {}
        executable = self._entry.executable
        own = executable.in_sigs[len(self._entry.consts) :]
        self._in_shardings: list[Sharding | None] = [None] * len(self._avals)
        for i, sig in zip(self._entry.kept, own, strict=True):
            self._in_shardings[i] = input_sharding(executable, sig)

    # -- inspection --------------------------------------------------------------------------------------------------------------

    @property
    def input_shardings(self) -> ArgsKwargs:
        """(args, kwargs) with a sharding for each argument, None for unused arguments."""
        return self._as_arguments(self._in_shardings)

    @property
    def output_shardings(self) -> Any:
        """A sharding for each result."""
        return self._as_results([s.sharding for s in self._entry.executable.out_sigs])

    @property
    def input_formats(self) -> ArgsKwargs:
        """(args, kwargs) with layout and sharding of each argument."""
        orders = self._lowered._orders
        formats = [format_of(t.ndim, s, o) for t, s, o in zip(self._avals, self._in_shardings, orders, strict=True)]
        return self._as_arguments(formats)

    @property
    def output_formats(self) -> Any:
        """Layout and sharding of each result."""
        return self._as_results(self._formats())

    def _formats(self) -> list[Format]:
        sigs = self._entry.executable.out_sigs
        orders = self._entry.orders or [None] * len(sigs)
        return [format_of(s.aval.ndim, s.sharding, o) for s, o in zip(sigs, orders, strict=True)]

    def _check_orders(self, values: Sequence[Any]) -> None:
        wrong: list[str] = []
        for value, order, name in zip(values, self._lowered._orders, self._names, strict=False):
            if isinstance(value, ArrayImpl) and value.committed:
                default = tuple(range(value.ndim))
                own, wanted_order = value._sig.order or default, order or default
                if own != wanted_order:
                    wrong.append(
                        f"Argument {name} with shape {value.aval.str_short()}: Passed layout: {Layout(own)}, required layout: "
                        f"{Layout(wanted_order)}"
                    )
        if wrong:
            raise ValueError(
                "Computation was compiled for input layouts that disagree with the layouts of arguments passed to it. Here are the "
                f"{len(wrong)} mismatches: {'; '.join(wrong)}. Place them with device_put(x, Format(layout, sharding))."
            )

    @property
    def out_info(self) -> Any:
        """The results' ShapeDtypeStructs with their shardings and layouts."""
        formats = zip(self._out_avals, self._formats(), strict=True)
        return self._as_results([strong_struct(t, f) for t, f in formats])

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
        if tree != self._tree:
            raise self._tree_error(args, kwargs)
        values = [as_value(x) for x in leaves]
        for x in values:
            if isinstance(x, Tracer):
                raise TypeError(
                    "Cannot apply JAX transformations to a function lowered and compiled for a particular signature. "
                    f"Detected argument of Tracer type {type(x)} ({x.aval.str_short()}). Call the jitted function instead."
                )
        key = tuple(x._sig if isinstance(x, ArrayImpl) else x.aval for x in values)
        way = self._known.get(key)
        if way is None:
            self._check_types(values)
            self._check_shardings(values)
            self._check_orders(values)
            for x in values:
                if isinstance(x, ArrayImpl):
                    x._check_alive()
            entry = self._entry_of(values)
            way = self._known[key] = entry, _moves(entry, values)
        entry, moves = way
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

    def _entry_of(self, values: Sequence[Any]) -> Entry:
        """The compiled call; of arguments whose copies differ, the one in which each device computes with its own."""
        own = self._entry.executable.in_sigs[len(self._entry.consts) :]
        has = {i: set(sig.varies) for i, sig in zip(self._entry.kept, own, strict=True)}
        if all(has[i].issuperset(x._sig.varies) for i, x in enumerate(values) if i in has and isinstance(x, ArrayImpl)):
            return self._entry
        entry = self._lowered.entry_of(values)
        entry.finish()
        return entry

    def _tree_error(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        expected_args, expected_kwargs = tree_unflatten(self._tree, [0] * self._tree.num_leaves)
        zeros_args, zeros_kwargs = tree_map(lambda _: 0, (args, kwargs))
        problems = [
            f"at args{keystr(p)}, compiled for {a} but called with {b}, so {why}"
            for p, a, b, why in equality_errors(expected_args, zeros_args)
        ]
        problems += [
            f"at kwargs{keystr(p)}, compiled for {a} but called with {b}, so {why}"
            for p, a, b, why in equality_errors(expected_kwargs, zeros_kwargs)
        ]
        problem_list = "\n".join(f"    * {p}" for p in problems)
        more = self._lowered._has_statics and len(args) + len(kwargs) > len(expected_args) + len(expected_kwargs)
        hint = "\nStatic arguments must be left out of the call." if more else ""
        return TypeError(
            "Function compiled with input pytree does not match the input pytree it was called with. "
            f"There are {len(problems)} mismatches, including:\n{problem_list}{hint}"
        )

    def _check_types(self, values: Sequence[Any]) -> None:
        lines = []
        for name, want, x in zip(self._names, self._avals, values, strict=True):
            if want.shape != x.aval.shape or want.dtype != x.aval.dtype:
                lines.append(f"Argument '{name}' compiled with {plain_type(want)} and called with {plain_type(x.aval)}")
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
                    f"Argument {name} with shape {plain_type(x.aval)}:\n  Passed sharding: {x.sharding}\n"
                    f"  Required sharding: {want}"
                )
        if lines:
            head = config.dialect.jit.compiled_for_others_text
            raise ValueError(
                f"{head} Here are the {len(lines)} mismatches:\n"
                + "\n".join(lines)
                + "\nMove the arguments with device_put, or compile for their shardings."
            )


def _moves(entry: Entry, values: Sequence[Any]) -> list[tuple[int, Signature]]:
    """The arguments that enter under another signature, as positions among those that the call takes."""
    own = entry.executable.in_sigs[len(entry.consts) :]
    return [
        (k, sig)
        for k, (i, sig) in enumerate(zip(entry.kept, own, strict=True))
        if getattr(values[i], "_sig", None) is not sig
    ]


def plain_type(aval: ShapedArray) -> str:
    """A type without its sharding: ``float32[2,3]``."""
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
