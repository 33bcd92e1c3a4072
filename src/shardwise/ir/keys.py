"""Cache keys for params and other settings.

In: a value that hashes. Out: a value that hashes and equals another's exactly if both are the same: of one type, and
with the same bits. ``==`` is weaker: it holds between 0.0 and -0.0 and between True, 1 and 1.0, and fails between NaNs.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import NoneType
from typing import Any

import numpy as np

from shardwise.ir.op import Op, Params


class _Mark:
    """The first entry of a key that is not the value itself; users' values never contain it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


_BOOLS = {False: _Mark("False"), True: _Mark("True")}
_FLOAT, _COMPLEX, _NUMPY, _TYPED, _SET, _SLICE = map(_Mark, ("float", "complex", "numpy", "typed", "set", "slice"))
_PLAIN = frozenset({int, str, NoneType})  # types whose values are their own keys
_all_plain = _PLAIN.issuperset

_Key = Callable[[Any], Hashable]


def _tuple(value: tuple[Any, ...]) -> Hashable:
    return value if _all_plain(map(type, value)) else tuple([exact(v) for v in value])


def _numpy(value: Any) -> Hashable:
    return (_NUMPY, type(value), value.dtype, value.shape, value.tobytes()) if value.dtype != object else value


def _of_dataclass(kind: type) -> _Key:
    names = [f.name for f in dataclasses.fields(kind) if f.compare]
    return lambda value: (_TYPED, kind, *[exact(getattr(value, n)) for n in names])


def _key_of(kind: type) -> _Key | None:
    """The function from values of a type to keys; None if they are their own keys, as values compared by identity are."""
    if issubclass(kind, (np.generic, np.ndarray)):
        return _numpy
    if issubclass(kind, float):
        return lambda value: (_FLOAT, kind, struct.pack("<d", value))
    if issubclass(kind, complex):
        return lambda value: (_COMPLEX, kind, struct.pack("<dd", value.real, value.imag))
    if issubclass(kind, (int, str)) and kind not in _PLAIN:
        return lambda value: (_TYPED, kind, value)
    if issubclass(kind, tuple) and "__eq__" not in kind.__dict__:
        return lambda value: (_TYPED, kind, *map(exact, value))
    if kind is frozenset:
        return lambda value: (_SET, frozenset(map(exact, value)))
    if kind is slice:
        return lambda value: (_SLICE, exact(value.start), exact(value.stop), exact(value.step))
    compares = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.eq  # type: ignore[attr-defined]
    if compares and kind.__hash__ is not None and kind.__eq__ is not object.__eq__:
        return _of_dataclass(kind)
    return None


_keys: dict[type, _Key | None] = {tuple: _tuple, bool: _BOOLS.__getitem__, **dict.fromkeys(_PLAIN)}


def exact(value: Any) -> Any:
    """The key of one value; it does not hash if `value` does not, NumPy arrays excepted."""
    kind = value.__class__
    try:
        key = _keys[kind]
    except KeyError:
        key = _keys[kind] = _key_of(kind)
    return value if key is None else key(value)


def exact_items(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The key of params, whatever op they belong to."""
    return tuple([(k, exact(v)) for k, v in params.items()])


def params_key(op: Op, params: Params) -> tuple[Any, ...]:
    """The key of an equation's params, next to that of `op`.

    Most ops hold only shapes, names and switches: their values and types are the key, which makes a dispatch faster.
    Callers that store something under the key call `note_params` first.
    """
    if not params:
        return ()
    return exact_items(params) if op.numeric else (*params, *params.values(), *map(type, params.values()))


def note_params(op: Op, params: Params) -> bool:
    """Whether these are the first params of `op` for which ``==`` is too weak; from now on the op's keys are exact."""
    if op.numeric or not any(_numeric(v) for v in params.values()):
        return False
    op.numeric = True
    return True


def _numeric(value: Any) -> bool:
    """Whether some other value of the same type equals `value` without being the same."""
    kind = type(value)
    if kind is bool:
        return False
    if isinstance(value, tuple):
        return any(type(v) is bool or _numeric(v) for v in value)
    if dataclasses.is_dataclass(kind):
        if not kind.__dataclass_params__.eq:  # type: ignore[attr-defined]  # programs, for one: each equals itself only
            return False
        return any(_numeric(getattr(value, f.name)) for f in dataclasses.fields(kind))
    return exact(value) is not value


class ExactParams(Mapping[str, Any]):
    """Params as an argument of a cached function: equal if they are the same, in any order."""

    __slots__ = ("_hash", "_key", "_params")

    def __init__(self, params: Params) -> None:
        self._params = params
        self._key: Any = None

    def __getitem__(self, name: str) -> Any:
        return self._params[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __hash__(self) -> int:
        if self._key is None:
            self._key = frozenset(exact_items(self._params))  # not before: TypeError where a value does not hash
            self._hash = hash(self._key)
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactParams) and hash(self) == hash(other) and self._key == other._key


class SharedParams:
    """One object for equal params, so that later passes, which know params by their ids, find equal ones of several equations."""

    __slots__ = ("_by_id", "_by_key")

    def __init__(self) -> None:
        # By id of the params, which the values keep.
        self._by_id: dict[int, tuple[Params, Params]] = {}
        self._by_key: dict[frozenset[tuple[str, Any]], Params] = {}

    def __call__(self, params: Params) -> Params:
        """The first params equal to these; themselves if they do not hash."""
        known_key = self._by_id.get(id(params))
        if known_key is None:
            try:
                first = self._by_key.setdefault(frozenset(exact_items(params)), params)
            except TypeError:
                first = params
            known_key = self._by_id[id(params)] = params, first
        return known_key[1]
