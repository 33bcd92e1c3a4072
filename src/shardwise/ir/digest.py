"""A digest of a program's computation, the same in every process that runs the same program.

In: a Program. Out: per value a hash over all that it depends on: ops, params, literals, types, inputs by position.
Names of values, source lines and the order of independent equations do not enter, so neither an extra line of source in one
process nor the order of a Python set changes it. Params are hashed by content, never by address.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import CodeType
from typing import Any

import numpy as np

from shardwise.base.dtypes import KeyDtype
from shardwise.ir.op import Op
from shardwise.ir.program import Atom, Equation, Program, Var, subprograms
from shardwise.ir.types import ShapedArray
from shardwise.ir.value import Literal
from shardwise.sharding import AbstractMesh, Device, Mesh, NamedSharding, PartitionSpec, Sharding

OrderRule = Callable[[Equation], bool]
_SIZE = 16  # bytes


class ProgramDigest:
    """The hashes of a program's values.

    `ordered` selects the equations that must run in the same order in every process; `sequence` holds their hashes and the equations.
    `whole` hashes the types of inputs, the results and that sequence. An equation without results, such as a print, counts only
    if it is in the sequence.
    """

    def __init__(self, program: Program, ordered: OrderRule) -> None:
        self._ordered = ordered
        self._values: dict[Var, bytes] = {}
        self.sequence: list[tuple[bytes, Equation]] = []
        self.equations: list[tuple[bytes, Equation]] = []
        for i, var in enumerate(program.inputs):
            self._values[var] = _hash(b"input", str(i).encode(), encode_params(var.aval, ordered))
        for eqn in program.equations:
            own = _hash(
                b"equation",
                eqn.op.name.encode(),
                encode_params(eqn.params, ordered),
                *[self.of(a) for a in eqn.inputs],
                *[encode_params(v.aval, ordered) for v in eqn.outputs],
            )
            self.equations.append((own, eqn))
            if _has_order(eqn, ordered):
                self.sequence.append((own, eqn))
            for i, var in enumerate(eqn.outputs):
                self._values[var] = _hash(own, str(i).encode())
        parts = [encode_params(v.aval, ordered) for v in program.inputs]
        parts += [own for own, _ in self.sequence]
        self.whole = _hash(b"program", *parts, b"results", *[self.of(a) for a in program.outputs])

    def of(self, atom: Atom) -> bytes:
        """The hash of a value."""
        if isinstance(atom, Literal):
            return _hash(
                b"literal",
                encode_params(atom.aval, self._ordered),
                encode_params(np.asarray(atom.value), self._ordered),
            )
        return self._values[atom]


def _has_order(eqn: Equation, ordered: OrderRule) -> bool:
    return ordered(eqn) or any(_has_order(e, ordered) for _, p in subprograms(eqn.params) for e in p.equations)


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_SIZE)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _never(eqn: Equation) -> bool:
    return False


def encode_params(value: Any, ordered: OrderRule = _never) -> bytes:
    """Bytes that are equal for equal params: numbers by type and bits, arrays by content, programs by digest.

    Functions count by their name and code, and by the numbers and functions that they capture; other captured values may differ
    between processes (a file, a path) and do not count. Objects of unknown classes count by their class alone.
    """
    kind = type(value)
    if isinstance(value, ShapedArray):
        return _of_type(value)
    encode = functools.partial(encode_params, ordered=ordered)
    if value is None or kind is bool or kind is int or kind is str or kind is bytes:
        return f"{kind.__name__} {value!r}".encode()
    if kind is float:
        return b"float " + struct.pack("<d", value)
    if kind is complex:
        return b"complex " + struct.pack("<dd", value.real, value.imag)
    if isinstance(value, PartitionSpec):
        marks = [",".join(sorted(axes)).encode() for axes in (value.unreduced, value.reduced)]
        return _hash(b"spec", encode(value.partitions), *marks)
    if isinstance(value, (tuple, list)):
        return _hash(b"sequence", kind.__name__.encode(), *map(encode, value))
    if isinstance(value, Mapping):
        return _hash(b"mapping", *sorted(_hash(encode(k), encode(v)) for k, v in value.items()))
    if isinstance(value, (set, frozenset)):
        return _hash(b"set", *sorted(map(encode, value)))
    if isinstance(value, Program):
        return _hash(b"inner", ProgramDigest(value, ordered).whole)
    if isinstance(value, Op):
        return b"op " + value.name.encode()
    if isinstance(value, (np.ndarray, np.generic)):
        data = np.ascontiguousarray(value)
        return _hash(
            b"array", encode(value.dtype), str(value.shape).encode(), data.reshape(-1).view(np.uint8).data.tobytes()
        )
    if isinstance(value, (np.dtype, KeyDtype)):
        return b"dtype " + (value.name if isinstance(value, np.dtype) else str(value)).encode()
    if isinstance(value, Literal):
        return _hash(b"literal", encode(value.aval), encode(np.asarray(value.value)))
    return _hash(*_of_object(value, encode))


Encode = Callable[[Any], bytes]


@functools.lru_cache(maxsize=4096)
def _of_type(aval: ShapedArray) -> bytes:
    axes = [" ".join(sorted(names)).encode() for names in (aval.vma, aval.unreduced, aval.reduced)]
    return _hash(b"type", f"{aval.shape} {aval.weak_type} {aval.spec}".encode(), encode_params(aval.dtype), *axes)


def _of_function(function: Any, encode: Encode) -> Iterator[bytes]:
    yield f"{function.__module__}.{function.__name__}".encode()
    yield encode(function.__code__)


def _cell_contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def _of_object(value: Any, encode: Encode) -> Iterator[bytes]:
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}".encode()
    elif isinstance(value, enum.Enum):
        yield value.name.encode()
    elif isinstance(value, Device):
        yield str(value.id).encode()
    elif isinstance(value, (Mesh, AbstractMesh)):
        yield f"{value.axis_names} {value.axis_sizes} {value.axis_types}".encode()
        yield str([d.id for d in value.devices.flat] if isinstance(value, Mesh) else "").encode()
    elif isinstance(value, NamedSharding):
        yield from (encode(value.mesh), encode(value.spec), encode(value.memory_kind))
    elif isinstance(value, Sharding):
        yield f"{value} {[d.id for d in value.device_list]}".encode()
    elif isinstance(value, functools.partial):
        yield from (encode(value.func), encode(value.args), encode(value.keywords))
    elif isinstance(value, CodeType):
        yield value.co_name.encode()
        yield value.co_code
        yield encode(value.co_names)
        yield encode(value.co_consts)
    elif isinstance(getattr(value, "__code__", None), CodeType):
        yield from _of_function(value, encode)
        for cell in value.__closure__ or ():
            contents = _cell_contents(cell)
            if isinstance(contents, (bool, int, float, complex)):
                yield encode(contents)
            elif isinstance(getattr(contents, "__code__", None), CodeType):
                yield from _of_function(contents, encode)
    elif is_dataclass(value):
        for f in fields(value):
            yield f.name.encode()
            yield encode(getattr(value, f.name))
    elif isinstance(value, (int, float, str)):  # their subclasses
        yield repr(value).encode()
    elif callable(value):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}".encode()
