"""Checks of a traced program's results, its used inputs, and its mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.config import Setting
from shardwise.base.dtypes import is_key_dtype
from shardwise.base.errors import InvalidInputException
from shardwise.base.tree import keystr
from shardwise.engine.array import ArrayImpl
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.engine.signature import Signature, signature
from shardwise.ir import Atom, Equation, Literal, Program, Var
from shardwise.ir.references import root_of, shows_reference
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import full_cotangent
from shardwise.runtime.hollow import is_hollow
from shardwise.sharding import Mesh, SingleDeviceSharding
from shardwise.sharding.backend import default_device

# Whether a traced function may return types instead of values, because only types are needed.
TYPES_SUFFICE: Setting[bool] = Setting("types_suffice", False)


def as_result(leaf: Any) -> Any:
    """A leaf of a traced function's result, as a value."""
    if TYPES_SUFFICE.get() and isinstance(leaf, ShapeDtypeStruct):
        return as_array(full_cotangent(leaf.aval))
    return as_value(leaf)


def check_output(leaf: Any, name: str, path: Any) -> None:
    """Raise TypeError for a result that is no array."""

    if shows_reference(leaf):
        raise root_of(leaf).return_error(name, "jit", keystr(path))
    try:
        as_result(leaf)
    except (TypeError, InvalidInputException):
        at = f" at output component {keystr(path)}" if path else ""
        raise TypeError(
            f"function {name} to be compiled returned a value of type {type(leaf)}{at}, which is not a valid JAX type. "
            "Return arrays, scalars, and containers of them."
        ) from None


def typed_mesh(program: Program, sigs: Sequence[Signature]) -> Mesh | None:
    """The concrete mesh of explicitly typed results that no remaining argument lies on (``full_like(x, 0)``)."""
    result_mesh = next((aval.mesh for aval in program.out_types if aval.mesh is not None), None)
    for sig in sigs if result_mesh is not None else ():
        mesh = getattr(sig.sharding, "mesh", None)
        if isinstance(mesh, Mesh) and result_mesh is not None and mesh.shape_tuple == result_mesh.shape_tuple:
            return mesh
    return None


def as_constant(x: ArrayImpl) -> ArrayImpl:
    """A captured array as a constant, without its placement. Explicit axes stay, as they are part of its type."""
    if x.aval.mesh is not None:
        return x
    sig = signature(x.aval, SingleDeviceSharding(default_device()), False)
    return x if x._sig is sig else ArrayImpl(sig, dense=x.dense)


def prune(program: Program, keep_unused: bool) -> tuple[Program, list[int]]:
    """The program without unused inputs (unless `keep_unused`), and the positions of the inputs that remain."""
    if keep_unused:
        return program, list(range(len(program.inputs)))
    used: set[Atom] = set(program.outputs).union(*[e.inputs for e in program.equations])
    kept_inputs = [i for i, v in enumerate(program.inputs) if v in used]
    consts = sum(i < program.num_consts for i in kept_inputs)
    return Program(
        tuple(program.inputs[i] for i in kept_inputs), program.equations, program.outputs, consts, program.name
    ), kept_inputs


def with_scalars(program: Program, kept: Sequence[int], consts: Sequence[ArrayImpl]) -> tuple[Program, list[int]]:
    """The program with the values of captured scalars in its text, and the positions of the inputs that remain, of `kept`."""
    literals: dict[Var, Atom] = {}
    for k, i in enumerate(kept[: program.num_consts]):
        aval, block = consts[i].aval, consts[i].block
        if (
            block.size == 1
            and not aval.shape
            and aval.mesh is None
            and not (is_key_dtype(aval.dtype) or is_hollow(block))
        ):
            literals[program.inputs[k]] = Literal(block.reshape(()), aval)
    if not literals:
        return program, list(kept)

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else literals.get(a, a)

    equations = [
        e
        if literals.keys().isdisjoint(e.inputs)
        else Equation(e.op, tuple(map(read, e.inputs)), e.outputs, e.params, e.source)
        for e in program.equations
    ]
    left = [k for k, v in enumerate(program.inputs) if v not in literals]
    inputs, outputs = tuple([program.inputs[k] for k in left]), tuple(map(read, program.outputs))
    return Program(inputs, tuple(equations), outputs, program.num_consts - len(literals), program.name), [
        kept[k] for k in left
    ]
