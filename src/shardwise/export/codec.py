"""Programs as bytes: JSON for their structure and the arrays' own bytes behind it. Reading them runs nothing.

In: plain values, types, shardings, ops by name, programs and templates of symbolic size. Out: the same in another process. No pickle: a
class that bytes name has to be an enum or a dataclass of our ops, a shape or a number is checked like one that a user gives.

The bytes: a mark with the version of the form, the digest of what follows, the length of the JSON text, the text, the arrays.
"""

from __future__ import annotations

import enum
import hashlib
import importlib
import json
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from shardwise.base.dtypes import KEY_DTYPES, KeyDtype
from shardwise.export.dims import Operation, SymbolicDim
from shardwise.export.scopes import SymbolicScope
from shardwise.export.templates import Number, NumberLiteral, Record, array_type
from shardwise.ir import Equation, Literal, Op, Program, ShapedArray, Var, all_ops
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

_MARK: Final = b"shardwise export 1\n"
_DIGEST: Final = 16
_OURS: Final = __name__.partition(".")[0]
_ROOMS: Final = ("ops", "ir", "sharding", "transforms")  # where the classes of params are


class NotSerializable(TypeError):
    """A value that bytes cannot hold."""


class Malformed(ValueError):
    """The bytes are no exported function's."""


def to_bytes(data: Any) -> bytearray:
    """Plain values, arrays and programs as bytes.

    Raises:
        NotSerializable: there is something else in them.
    """
    writer = _Writer()
    text = json.dumps(writer.write(data), separators=(",", ":")).encode()
    body = len(text).to_bytes(8, "little") + text + b"".join(writer.arrays)
    return bytearray(_MARK + hashlib.blake2b(body, digest_size=_DIGEST).digest() + body)


def from_bytes(blob: Any) -> Any:
    """The object that `to_bytes` was given.

    Raises:
        Malformed: these are other bytes, or not all of them, or of another version.
    """
    data = bytes(blob)
    if not data.startswith(_MARK):
        form = _MARK.rpartition(b" ")[0]
        why = (
            "of another version of the form"
            if data.startswith(form)
            else "none that Exported.serialize of this library gave"
        )
        raise Malformed(f"deserialize: these bytes are {why}. Export the function anew with the version that loads it.")
    digest, body = data[len(_MARK) :][:_DIGEST], data[len(_MARK) + _DIGEST :]
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
        raise Malformed("deserialize: the bytes are damaged, or the end of them is missing. Copy them anew.")
    try:
        size = int.from_bytes(body[:8], "little")
        return _Reader(body[8 + size :]).read(json.loads(body[8 : 8 + size]))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError, RecursionError) as error:
        if isinstance(error, ValueError) and not isinstance(error, (Malformed, json.JSONDecodeError)):
            raise
        raise Malformed(
            f"deserialize: the bytes hold no exported function ({type(error).__name__}: {error})."
        ) from error


class _Writer:
    def __init__(self) -> None:
        self.arrays: list[bytes] = []
        self.offset = 0
        self.programs: dict[int, int] = {}
        self.kept: list[Any] = []  # objects known by their identity
        self.scopes: dict[int, int] = {}

    def write(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        tag = self._tag_value(value)
        if tag is None:
            raise NotSerializable(f"{value!r} of type {type(value).__module__}.{type(value).__qualname__}")
        return tag

    def _all(self, values: Any) -> list[Any]:
        return [self.write(v) for v in values]

    def _tag_value(self, value: Any) -> list[Any] | None:
        if isinstance(value, enum.Enum):
            return ["enum", *_class_name(type(value)), value.name]
        if isinstance(value, int):
            return ["int", int(value)]
        if isinstance(value, (float, complex)) and not isinstance(value, np.generic):
            return (
                ["float", value.hex()] if isinstance(value, float) else ["complex", value.real.hex(), value.imag.hex()]
            )
        if isinstance(value, PartitionSpec):
            return ["spec", *self._all((value.partitions, sorted(value.unreduced), sorted(value.reduced)))]
        if isinstance(value, (tuple, list, frozenset, set)) and not hasattr(value, "_fields"):
            values = sorted(value) if isinstance(value, (frozenset, set)) else value
            return [type(value).__name__, *self._all(values)]
        if isinstance(value, Mapping):
            return ["dict", *[self._all(item) for item in value.items()]]
        if isinstance(value, slice):
            return ["slice", *self._all((value.start, value.stop, value.step))]
        if isinstance(value, (bytes, bytearray)):
            return ["bytes", self._keep_bytes(bytes(value)), len(value)]
        if isinstance(value, (np.ndarray, np.generic)):
            array = np.ascontiguousarray(value)
            place = self._keep_bytes(array.tobytes())
            return ["array", place, _dtype_data(array.dtype), list(np.shape(value)), isinstance(value, np.generic)]
        if isinstance(value, KeyDtype):
            return ["keys", next(name for name, kind in KEY_DTYPES.items() if kind == value)]
        if isinstance(value, np.dtype):
            return ["dtype", _dtype_data(value)]
        if isinstance(value, Op):
            if all_ops().get(value.name) is not value:
                raise NotSerializable(f"the op {value.name}, which is this process's own")
            return ["op", value.name]
        return self._of_ours(value)

    def _keep_bytes(self, data: bytes) -> int:
        place, self.offset = self.offset, self.offset + len(data)
        self.arrays.append(data)
        return place

    def _of_ours(self, value: Any) -> list[Any] | None:
        if isinstance(value, SymbolicDim):
            scope = self._scope(value.scope)  # before those of the operations in it, as it is read
            return ["dim", scope, [[[[self._factor(f), n] for f, n in product], c] for product, c in value.terms]]
        if isinstance(value, ShapedArray):
            marks = (value.mesh, value.spec, value.vma, value.unreduced, value.reduced)
            plain = value.mesh is None and not any(value.spec) and not any(marks[2:])
            return ["type", *self._all((value.shape, value.dtype, value.weak_type)), *self._all(() if plain else marks)]
        if isinstance(value, Program):
            return self._program(value)
        if isinstance(value, NumberLiteral):
            return ["sized", *self._all((value.number, value.value, value.aval))]
        if isinstance(value, Literal):
            return ["literal", *self._all((value.value, value.aval))]
        if isinstance(value, Number):
            return ["number", value.kind, self.write(value.size), value.divisor]
        if isinstance(value, Record):
            return ["record", *_class_name(value.kind), True, *[[name, self.write(v)] for name, v in value.values]]
        if isinstance(value, (Mesh, AbstractMesh)):
            mesh = value.abstract_mesh
            return ["mesh", *self._all((mesh.axis_sizes, mesh.axis_names)), [t.name for t in mesh.axis_types or ()]]
        if isinstance(value, NamedSharding):
            return ["sharding", *self._all((value.mesh, value.spec, value.memory_kind))]
        if is_dataclass(value) and not isinstance(value, type):
            return [
                "record",
                *_class_name(type(value)),
                False,
                *[[f.name, self.write(getattr(value, f.name))] for f in fields(value)],
            ]
        if isinstance(value, tuple):
            names: tuple[str, ...] = value._fields  # pyright: ignore[reportAttributeAccessIssue]
            return [
                "record",
                *_class_name(type(value)),
                False,
                *[[n, self.write(v)] for n, v in zip(names, value, strict=True)],
            ]
        return None

    def _factor(self, factor: Any) -> Any:
        return factor if isinstance(factor, str) else [factor.kind, *self._all((factor.left, factor.right))]

    def _scope(self, scope: SymbolicScope) -> list[Any]:
        scope_number = self.scopes.get(id(scope))
        if scope_number is not None:
            return [scope_number]
        self.scopes[id(scope)] = len(self.scopes)
        self.kept.append(scope)
        return [self.scopes[id(scope)], [text for text, *_ in scope.constraints]]

    def _program(self, program: Program) -> list[Any]:
        program_number = self.programs.get(id(program))
        if program_number is not None:
            return ["known program", program_number]
        numbers: dict[Var, int] = {}

        def define(var: Var) -> Any:
            numbers[var] = len(numbers)
            return self.write(var.aval)

        def read(atom: Any) -> Any:
            return numbers[atom] if isinstance(atom, Var) else self.write(atom)

        inputs = list(map(define, program.inputs))
        equations = [
            [
                e.op.name if self.write(e.op) else "",
                [read(a) for a in e.inputs],
                self.write(dict(e.params)),
                list(map(define, e.outputs)),
            ]
            for e in program.equations
        ]
        results = [read(a) for a in program.outputs]
        self.kept.append(program)
        self.programs[id(program)] = len(self.programs)
        return ["program", program.name, program.num_consts, inputs, equations, results]


class _Reader:
    def __init__(self, arrays: bytes) -> None:
        self.arrays = arrays
        self.programs: list[Program] = []
        self.scopes: list[SymbolicScope] = []

    def read(self, data: Any) -> Any:
        if not isinstance(data, list):
            return data
        tag, *rest = data
        return getattr(self, "_read_" + tag.replace(" ", "_"))(*rest)

    def _all(self, data: Any) -> list[Any]:
        return [self.read(item) for item in data]

    def _read_int(self, value: int) -> int:
        return int(value)

    def _read_float(self, text: str) -> float:
        return float.fromhex(text)

    def _read_complex(self, real: str, imag: str) -> complex:
        return complex(float.fromhex(real), float.fromhex(imag))

    def _read_enum(self, module: str, name: str, member: str) -> Any:
        return _class(module, name, enum.Enum)[member]

    def _read_spec(self, partitions: Any, unreduced: Any, reduced: Any) -> PartitionSpec:
        marks = {"unreduced": set(self.read(unreduced)), "reduced": set(self.read(reduced))}
        return PartitionSpec(*self.read(partitions), **{k: v for k, v in marks.items() if v})

    def _read_tuple(self, *items: Any) -> tuple[Any, ...]:
        return tuple(self._all(items))

    def _read_list(self, *items: Any) -> list[Any]:
        return self._all(items)

    def _read_frozenset(self, *items: Any) -> frozenset[Any]:
        return frozenset(self._all(items))

    def _read_set(self, *items: Any) -> set[Any]:
        return set(self._all(items))

    def _read_dict(self, *items: Any) -> dict[Any, Any]:
        return {self.read(k): self.read(v) for k, v in items}

    def _read_slice(self, *parts: Any) -> slice:
        return slice(*self._all(parts))

    def _read_bytes(self, place: int, size: int) -> bytes:
        return self._take(place, size)

    def _read_array(self, place: int, dtype: Any, shape: list[int], scalar: bool) -> Any:
        kind = self._read_dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        data = self._take(place, count * kind.itemsize)
        array = np.frombuffer(data, kind).reshape(shape) if kind.itemsize else np.zeros(shape, kind)
        return array[()] if scalar else array

    def _take(self, place: int, size: int) -> bytes:
        if place < 0 or size < 0 or place + size > len(self.arrays):
            raise Malformed("deserialize: an array lies outside of the bytes.")
        return self.arrays[place : place + size]

    def _read_keys(self, name: str) -> KeyDtype:
        return KEY_DTYPES[name]

    def _read_dtype(self, name: Any) -> np.dtype[Any]:
        return np.dtype([(n, t) for n, t in name] if isinstance(name, list) else name)

    def _read_op(self, name: str) -> Op:
        return op_of_name(name)

    def _read_dim(self, scope: Any, terms: Any) -> SymbolicDim:
        number, *constraints = scope
        if number == len(self.scopes):
            self.scopes.append(SymbolicScope(constraints[0]))
        products = {tuple((self._factor(f), n) for f, n in product): c for product, c in terms}
        return SymbolicDim(products, self.scopes[number])

    def _factor(self, data: Any) -> Any:
        return data if isinstance(data, str) else Operation(data[0], self.read(data[1]), self.read(data[2]))

    def _read_type(self, shape: Any, dtype: Any, weak_type: bool, *marks: Any) -> ShapedArray:
        names = ("mesh", "spec", "vma", "unreduced", "reduced")
        sizes = self.read(shape)
        like = ShapedArray(
            (1,) * len(sizes), self.read(dtype), weak_type, **dict(zip(names, self._all(marks), strict=False))
        )
        return array_type(sizes, like)

    def _read_literal(self, value: Any, aval: Any) -> Literal:
        return Literal(self.read(value), self.read(aval))

    def _read_sized(self, number: Any, value: Any, aval: Any) -> NumberLiteral:
        return NumberLiteral(self.read(number), self._read_literal(value, aval))

    def _read_number(self, kind: str, size: Any, divisor: int) -> Number:
        return Number(kind, self.read(size), divisor)

    def _read_record(self, module: str, name: str, sized: bool, *items: Any) -> Any:
        kind = _class(module, name, object)
        values = tuple((k, self.read(v)) for k, v in items)
        return Record(kind, values) if sized else kind(**dict(values))

    def _read_mesh(self, sizes: Any, names: Any, types: list[str]) -> AbstractMesh:
        return AbstractMesh(self.read(sizes), self.read(names), axis_types=tuple(AxisType[t] for t in types) or None)

    def _read_sharding(self, mesh: Any, spec: Any, memory_kind: str | None) -> NamedSharding:
        return NamedSharding(self.read(mesh), self.read(spec), memory_kind=memory_kind)

    def _read_known_program(self, number: int) -> Program:
        return self.programs[number]

    def _read_program(self, name: str, consts: int, inputs: Any, equations: Any, results: Any) -> Program:
        values: list[Var] = []

        def define(data: Any) -> Var:
            values.append(Var(self.read(data)))
            return values[-1]

        def read(data: Any) -> Any:
            return self.read(data) if isinstance(data, list) else values[data]

        ins = tuple(map(define, inputs))
        eqns: list[Equation] = []
        for op, atoms, params, outs in equations:
            input_vars = tuple(map(read, atoms))
            equation_params = self.read(params)
            eqns.append(Equation(op_of_name(op), input_vars, tuple(map(define, outs)), equation_params))
        program = Program(ins, tuple(eqns), tuple(map(read, results)), consts, name)
        self.programs.append(program)
        return program


def _class_name(kind: type) -> tuple[str, str]:
    """Module and name of a class that bytes may name."""
    _class(kind.__module__, kind.__qualname__, object)
    return kind.__module__, kind.__qualname__


def _class(module: str, name: str, base: type) -> Any:
    """The enum, dataclass or namedtuple of ours by that name.

    Raises:
        NotSerializable: it is another class.
    """
    parts = module.split(".")
    if parts[0] == _OURS and len(parts) > 1 and parts[1] in _ROOMS and all(p.isidentifier() for p in parts):
        value: Any = getattr(importlib.import_module(module), name, None)
        ours = isinstance(value, type) and value.__module__ == module and issubclass(value, base)
        if ours and (is_dataclass(value) or issubclass(value, (enum.Enum, tuple))):
            return value
    raise NotSerializable(f"an object of the class {module}.{name}")


def _dtype_data(dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None:
        return [[name, dtype[name].str] for name in dtype.names]
    return dtype.str if dtype.type is np.void else dtype.name


def op_of_name(name: str) -> Op:
    """The op of that name. Files of ops are imported as programs need them: if its own has not been, all are.

    Raises:
        KeyError: there is none.
    """
    for room in ("ops", "transforms"):
        if name not in all_ops():
            package = importlib.import_module(f"{_OURS}.{room}")
            for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                if module.name not in sys.modules:
                    importlib.import_module(module.name)
    return all_ops()[name]
