"""The body of an exported function: traced for each size that asks, or one program that was carried as bytes.

In: a function that traces at given sizes, or a template and constants. Out: the program for given sizes, and the portable form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import Bounded
from shardwise.base.tree import PyTreeDef
from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import Signature, signature
from shardwise.export.dims import evaluate_size
from shardwise.export.samples import Samples
from shardwise.export.scopes import SymbolicScope
from shardwise.export.templates import Unlike, array_type, instance_of, same_program, template_of
from shardwise.ir import (
    Equation,
    Program,
    ProgramError,
    ShapedArray,
    Var,
    live_equations,
    map_equations,
    map_programs,
    subprograms,
    verify,
)
from shardwise.passes import inline_calls
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding, Sharding, SingleDeviceSharding
from shardwise.sharding.backend import default_device
from shardwise.transforms.jit.abstract import Abstract
from shardwise.transforms.jit.jit_op import jit_op
from shardwise.transforms.jit.stages import Traced

Sizes = Mapping[str, int]
Constant = tuple[ShapedArray, np.ndarray[Any, Any]]


class Shape(NamedTuple):
    """The types that a traced function takes and gives, and its trees."""

    in_tree: PyTreeDef
    in_avals: tuple[ShapedArray, ...]
    out_tree: PyTreeDef
    out_avals: tuple[ShapedArray, ...]
    in_shardings: tuple[NamedSharding | None, ...]
    out_shardings: tuple[NamedSharding | None, ...]
    devices: int
    name: str


class Part(NamedTuple):
    """A template and its first inputs."""

    program: Program
    constants: list[Constant]


class Portable(NamedTuple):
    """A program for all sizes.

    Attributes:
        main: the template.
        special: templates where some symbolic dims have small values at which the function does something else; a text where there is none.
    """

    main: Part
    special: tuple[tuple[dict[str, int], Part | str], ...]


class TracedBody:
    """A function that is traced anew for each size; a template is made of several traces when it is asked for."""

    def __init__(self, trace: Callable[[Sizes], Traced], names: Sequence[str], scope: SymbolicScope | None) -> None:
        self._trace = trace
        self._names = tuple(names)
        self._scope = scope
        self.traces: list[Traced] = []
        self.samples: Samples | None = None
        self._known: dict[tuple[tuple[str, int], ...], Traced] = {}
        self._raises: list[tuple[dict[str, int], Part | str]] = []
        self._sample(False)

    def _sample(self, more: bool) -> None:
        if self._scope is None:
            self.traces = [self._trace({})]
            return
        self.samples = Samples(self._names, self._scope, more)
        self.traces = [self._at(env) for env in self.samples.envs]
        for env in list(self.samples.small):
            try:
                self._at(env)
            except Exception as error:  # a user's function may raise anything at a size that it is not for
                self.samples.small.remove(env)
                self._raises.append((_small(env, self.samples), f"the function raises {type(error).__name__}: {error}"))

    def _at(self, env: Sizes) -> Traced:
        key = tuple(sorted(env.items()))
        if key not in self._known:
            try:
                self._known[key] = self._trace(env)
            except Exception as error:
                error.add_note(
                    f"export traces the function at several sizes of its symbolic dims, here at {dict(env)}."
                )
                raise
        return self._known[key]

    def shape(self) -> Shape:
        """The function's types; those of results are expressions of its symbolic dims.

        Raises:
            NotImplementedError: the dims of a result are none.
        """
        first = self.traces[0]
        avals = self._avals()
        if avals is None and self.samples is not None and not self.samples.more:
            self._sample(True)
            avals = self._avals()
        if avals is None:
            shapes = [[t.str_short() for t in trace._out_avals] for trace in self.traces]
            raise NotImplementedError(
                f"export: the results of {first.fun_name} have shapes that no expression of its symbolic dims gives: {shapes[:4]}, .... "
                "Give it shapes of numbers."
            )
        ins, outs = _shardings(first)
        values = (*ins, *outs, *_meshes_of(first._traced.program))
        return Shape(
            first.in_tree, avals[0], first.out_tree, avals[1], ins, outs, max([1, *map(_size, values)]), first.fun_name
        )

    def _avals(self) -> tuple[tuple[ShapedArray, ...], tuple[ShapedArray, ...]] | None:
        small = [] if self.samples is None else [self._at(env) for env in self.samples.small]
        rows = [(*t._avals, *t._out_avals) for t in (*self.traces, *small)]
        value_types: list[ShapedArray] = []
        if len({len(row) for row in rows}) != 1:
            return None
        for avals in zip(*rows, strict=True):
            first = avals[0]
            if self.samples is None or all(a is first for a in avals):
                value_types.append(first)
                continue
            if any(a.ndim != first.ndim for a in avals):
                return None
            dims = [self.samples.fit(sizes) for sizes in zip(*[a.shape for a in avals], strict=True)]
            if None in dims:
                return None
            value_types.append(array_type(dims, first))
        count = len(self.traces[0]._avals)
        return tuple(value_types[:count]), tuple(value_types[count:])

    def program(self, sizes: Sizes) -> tuple[Program, list[Any]]:
        """The function's own trace, with its custom derivatives."""
        return _trace_program(self.traces[0] if self._scope is None else self._trace(sizes))

    def portable(self) -> Portable:
        """The template of the traces.

        Raises:
            NotImplementedError: there is none.
        """
        try:
            return self._template()
        except Unlike as first:
            if self.samples is None or self.samples.more:
                raise _refusal_error(self.traces[0], first) from None
        self._sample(True)
        try:
            return self._template()
        except Unlike as error:
            raise _refusal_error(self.traces[0], error) from None

    def _template(self) -> Portable:
        if self.samples is None or self._scope is None:
            return Portable(_part(self.traces[0]), ())
        main = self._join_sizes(self.samples)
        special = list(self._raises)
        for env in self.samples.small:
            fixed_sizes = _small(env, self.samples)
            if _holds(main, env, _part(self._at(env))):
                continue
            rest = [name for name in self._names if name not in fixed_sizes]
            samples = Samples(rest, self._scope, self.samples.more, fixed_sizes)
            try:
                special.append((fixed_sizes, self._join_sizes(samples)))
            except Exception as error:  # also those of the user's function
                special.append((fixed_sizes, f"{type(error).__name__}: {error}"))
        return Portable(main, tuple(special))

    def _join_sizes(self, samples: Samples) -> Part:
        """The template of the traces at the sampled sizes, which must also hold at the large ones."""
        part = _join_traces([self._at(env) for env in samples.envs], samples)
        for env in samples.far:
            try:
                own = _part(self._at(env))
            except Exception as error:  # the user's function may raise anything
                raise Unlike(f"it raises {type(error).__name__} at {env}: {error}") from None
            if not _holds(part, env, own):
                raise Unlike(f"it does something else at {env}")
        return part


class LoadedBody:
    """One program for all sizes, from bytes."""

    def __init__(self, portable: Portable, in_avals: Sequence[ShapedArray], name: str) -> None:
        self._portable = portable
        self._in_avals = tuple(in_avals)
        self._name = name
        self._instances: Bounded[tuple[tuple[str, int], ...], Part] = Bounded(64)

    def program(self, sizes: Sizes) -> tuple[Program, list[Any]]:
        """The template at these sizes.

        Raises:
            ValueError: it means nothing there.
        """
        key = tuple(sorted(sizes.items()))
        instance = self._instances.get(key)
        if instance is None:
            instance = self._instances[key] = self._instance(sizes)
        sharding = SingleDeviceSharding(default_device())
        return instance.program, [
            ArrayImpl(signature(t, sharding, False), dense=value) for t, value in instance.constants
        ]

    def _instance(self, sizes: Sizes) -> Part:
        fitting_parts = [
            (fixed_sizes, part) for fixed_sizes, part in self._portable.special if fixed_sizes.items() <= sizes.items()
        ]
        _, part = max(fitting_parts, key=lambda item: len(item[0]), default=({}, self._portable.main))
        try:
            if isinstance(part, str):
                raise ValueError(part)
            program = verify(instance_of(part.program, sizes))
            wanted_shapes = [tuple(evaluate_size(d, sizes) for d in t.shape) for t in self._in_avals]
            if [t.shape for t in program.in_types[program.num_consts :]] != wanted_shapes:
                raise ValueError(f"it takes {', '.join(t.str_short() for t in program.in_types)}")
            return Part(program, part.constants)
        except (ProgramError, TypeError, ValueError, ArithmeticError) as error:
            raise ValueError(
                f"{self._name} was exported as one program for all sizes, which does not hold for {dict(sizes)}: {error}. Give the "
                "symbolic scope constraints that leave such sizes out, and export a function for them alone."
            ) from error

    def portable(self) -> Portable:
        """The program that was loaded."""
        return self._portable


Body = TracedBody | LoadedBody


def _small(env: Sizes, samples: Samples) -> dict[str, int]:
    """The variables whose small values `env` is about."""
    return {name: n for name, n in env.items() if n != samples.envs[-1][name]}


def _part(trace: Traced) -> Part:
    program, consts = _trace_program(trace)
    return Part(with_abstract_meshes(live_equations(inline_calls(program))), [_constant(c) for c in consts])


def _join_traces(traces: Sequence[Traced], samples: Samples) -> Part:
    parts = [_part(trace) for trace in traces]
    constants = parts[0].constants
    if not all(_same_constants(part.constants, constants) for part in parts):
        raise Unlike(
            "it closes over an array that depends on the sizes: make it inside with jnp.arange and its kin, not numpy's"
        )
    return Part(template_of([part.program for part in parts], samples), constants)


def _same_constants(a: list[Constant], b: list[Constant]) -> bool:
    return [(t, x.tobytes()) for t, x in a] == [(t, x.tobytes()) for t, x in b]


def _holds(main: Part, env: Sizes, own: Part) -> bool:
    """Whether a template stands for the function's own program at these sizes."""
    if not _same_constants(main.constants, own.constants):
        return False
    try:
        program = verify(instance_of(main.program, env))
    except (ProgramError, TypeError, ValueError, ArithmeticError):
        return False
    return same_program(program, own.program)


def _refusal_error(trace: Traced, reason: Unlike) -> NotImplementedError:
    return NotImplementedError(
        f"serialize: {trace.fun_name} has no program that holds for all sizes of its symbolic dims: {reason}. Give the scope "
        "constraints that leave such sizes out (symbolic_shape(..., constraints=['b <= 1024'])), export it for numbers, or call it without "
        "serializing, where it is traced for each size."
    )


def _constant(x: Any) -> Constant:
    if not isinstance(x, ArrayImpl):
        raise NotImplementedError(
            "serialize: the function closes over a value that is being traced. Pass it as an argument."
        )
    return x.aval, np.asarray(x.dense)


def _trace_program(trace: Traced) -> tuple[Program, list[Any]]:
    """The traced call as a program, with its shardings as constraints on abstract meshes."""
    traced_call = trace._traced
    ins, outs = _shardings(trace)
    inner = traced_call.program
    inputs = tuple(Var(v.aval) for v in inner.inputs)
    results = tuple(Var(v.aval) for v in inner.outputs)
    params = {
        "program": with_abstract_meshes(inner),
        "name": inner.name,
        "in_shardings": (None,) * len(traced_call.consts) + ins,
        "out_shardings": outs,
    }
    return Program(
        inputs, (Equation(jit_op, inputs, results, params),), results, len(traced_call.consts), inner.name
    ), list(traced_call.consts)


def _shardings(trace: Traced) -> tuple[tuple[NamedSharding | None, ...], tuple[NamedSharding | None, ...]]:
    """The shardings of arguments and results over abstract meshes, None where nothing is said."""
    argument_shardings = trace._wrapped._asked.of_arguments(trace._call)
    own = [_own_sharding(x, sig) for x, sig in zip(trace._call.leaves, trace._sigs, strict=True)]
    ins = [_abstract(a if a is not None else b) for a, b in zip(argument_shardings, own, strict=True)]
    return tuple(ins), tuple(map(_abstract, trace._chosen))


def _own_sharding(leaf: Any, sig: Signature) -> Sharding | None:
    """The sharding of the argument itself: of a placed array, or of a struct, which may lie on an `AbstractMesh`."""
    if isinstance(leaf, Abstract) and leaf.over is not None:
        return leaf.over
    return sig.sharding if sig.committed else None


def _abstract(sharding: Sharding | None) -> NamedSharding | None:
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh.abstract_mesh, sharding.spec, memory_kind=sharding.memory_kind)
    if sharding is None or len(sharding.device_list) == 1:
        return None
    raise NotImplementedError(
        f"export: {sharding} names devices. Use a NamedSharding, whose mesh can stand for others."
    )


def _size(held: Any) -> int:
    return 1 if held is None else held.mesh.size if isinstance(held, NamedSharding) else held.size


def _meshes_of(program: Program) -> list[Any]:
    meshes: list[Any] = []
    for eqn in program.equations:
        meshes += [v for v in eqn.params.values() if isinstance(v, (NamedSharding, Mesh, AbstractMesh))]
        for _, inner in subprograms(eqn.params):
            meshes += _meshes_of(inner)
    return meshes


def with_abstract_meshes(program: Program) -> Program:
    """`program` with meshes that name no devices: a call has those of its arguments."""
    return _abstract_program(program)


@functools.lru_cache(maxsize=256)
def _abstract_program(program: Program) -> Program:
    return map_equations(program, _abstract_equation)


def _abstract_equation(eqn: Equation) -> Equation:
    eqn = map_programs(eqn, _abstract_program)
    new_params = {k: _without_devices(v) for k, v in eqn.params.items()}
    if all(new_params[k] is v for k, v in eqn.params.items()):
        return eqn
    return Equation(eqn.op, eqn.inputs, eqn.outputs, new_params, eqn.source)


def _without_devices(value: Any) -> Any:
    if isinstance(value, Mesh):
        return value.abstract_mesh
    if isinstance(value, Sharding):
        return _abstract(value) if isinstance(value, NamedSharding) and isinstance(value.mesh, Mesh) else value
    if type(value) is tuple and any(isinstance(v, (Mesh, Sharding)) for v in value):
        return tuple(map(_without_devices, value))
    return value
