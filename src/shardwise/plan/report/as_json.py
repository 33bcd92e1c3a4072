"""A plan as JSON, and back.

The document has the fields of `Plan` and what it holds, by their names; a source line is ``[file, line]``. `version` counts changes that
readers must know of.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from shardwise.planner import Plan

VERSION = 1


def to_json(plan: Plan) -> str:
    """The document, one line. Fields that have their default are left out."""
    return json.dumps({"version": VERSION, **_encode(plan)}, allow_nan=False)


def from_json(text: str) -> Plan:
    """The plan of a document that `to_json` made. ValueError if it is none, or of a later version."""
    json_value = json.loads(text)
    if not isinstance(json_value, dict) or "version" not in json_value:
        raise ValueError("this is no plan: expected a JSON object with the field 'version'.")
    document = cast("dict[str, Any]", json_value)
    version: Any = document.pop("version")
    if version != VERSION:
        raise ValueError(f"the plan has version {version!r}, this shardwise reads {VERSION}: make it anew.")
    return _decode(Plan, document)


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields: dict[str, Any] = {}
        for name, default in _defaults(type(value)).items():
            item = getattr(value, name)
            if default is dataclasses.MISSING or item != default:
                fields[name] = _encode(item)
        return fields
    if isinstance(value, Mapping):
        return {k: _encode(v) for k, v in cast("Mapping[str, Any]", value).items()}
    return [_encode(v) for v in cast("Sequence[Any]", value)] if isinstance(value, (tuple, list)) else value


def _decode(kind: Any, value: Any) -> Any:
    """`value` of a document as a value of the type `kind`."""
    if kind is Any or value is None:
        return value
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        unknown = value.keys() - hints.keys()
        if unknown:
            raise ValueError(f"a {kind.__name__} has no field {sorted(unknown)[0]!r}.")
        return kind(**{k: _decode(hints[k], v) for k, v in value.items()})
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        return _decode(next(k for k in inner if k is not type(None)), value)
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(_decode(k, v) for k, v in zip(kinds, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {k: _decode(inner[1], v) for k, v in value.items()}
    return float(value) if kind is float else value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(kind)}
