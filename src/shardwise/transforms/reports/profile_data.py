"""Profiles read: files ``*.xplane.pb``, which `xspace` writes here, and JAX there."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

from shardwise.base.protobuf import fields


class ProfileEvent:
    """Something that took time: `name`, whole nanoseconds `start_ns`, `end_ns` and `duration_ns`, and `stats`, pairs of name and value."""

    def __init__(self, name: str, start_ns: float, duration_ns: float, stats: list[tuple[str, Any]]) -> None:
        self.name = name
        self.start_ns = start_ns
        self.duration_ns = duration_ns
        self._stats = stats

    @property
    def end_ns(self) -> float:
        """When it ended."""
        return self.start_ns + self.duration_ns

    @property
    def stats(self) -> Iterator[tuple[str, Any]]:
        """Pairs of name and value."""
        return iter(self._stats)


class ProfileLine:
    """The events of a thread: `name` and `events`."""

    def __init__(self, name: str, events: list[ProfileEvent]) -> None:
        self.name = name
        self._events = events

    @property
    def events(self) -> Iterator[ProfileEvent]:
        """The events, in the order of the file."""
        return iter(self._events)


class ProfilePlane:
    """The lines of one device or host: `name`, `lines` and `stats`."""

    def __init__(self, message: bytes) -> None:
        parts: dict[int, list[Any]] = {}
        for tag, value in fields(message):
            parts.setdefault(tag, []).append(value)
        self.name = parts.get(2, [b""])[-1].decode()
        self._event_names, self._stat_names = (dict(map(_read_entry, parts.get(tag, ()))) for tag in (4, 5))
        self._lines = [self._read_line(line) for line in parts.get(3, ())]
        self._stats = [self._read_stat(stat) for stat in parts.get(6, ())]

    @property
    def lines(self) -> Iterator[ProfileLine]:
        """The lines, in the order of the file."""
        return iter(self._lines)

    @property
    def stats(self) -> Iterator[tuple[str, Any]]:
        """Pairs of name and value."""
        return iter(self._stats)

    def _read_line(self, message: bytes) -> ProfileLine:
        parts = list(fields(message))
        single: dict[int, Any] = dict(parts)
        began = 1000 * _to_signed(single.get(3, 0))
        name = single.get(11, b"") or single.get(2, b"")
        return ProfileLine(name.decode(), [self._read_event(e, began) for tag, e in parts if tag == 4])

    def _read_event(self, message: Any, began: int) -> ProfileEvent:
        parts = list(fields(message))
        single: dict[int, Any] = dict(parts)
        start, takes = began + _to_signed(single.get(2, 0)), _to_signed(single.get(3, 0))
        stats = [self._read_stat(stat) for tag, stat in parts if tag == 4]
        return ProfileEvent(
            self._event_names.get(single.get(1, 0), ""), float(start // 1000), float(takes // 1000), stats
        )

    def _read_stat(self, message: Any) -> tuple[str, Any]:
        single: dict[int, Any] = dict(fields(message))
        readers: dict[int, Callable[[Any], Any]] = {
            2: lambda content: struct.unpack("<d", content)[0],
            3: lambda content: content,
            4: _to_signed,
            5: bytes.decode,
            6: lambda content: content,
            7: self._stat_names.get,
        }
        value = next((readers[tag](content) for tag, content in reversed(single.items()) if tag in readers), None)
        return self._stat_names.get(single.get(1, 0), ""), value


def _read_entry(message: bytes) -> tuple[int, str]:
    single: dict[int, Any] = dict(fields(message))
    return single.get(1, 0), dict(fields(single.get(2, b""))).get(2, b"").decode()  # type: ignore[union-attr]


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


class ProfileData:
    """A profile that `stop_trace` wrote, here or in JAX: `planes`, each with `lines`, each with `events`."""

    def __init__(self, planes: list[ProfilePlane]) -> None:
        self._planes = planes

    @staticmethod
    def from_file(proto_file_path: str | os.PathLike[str]) -> ProfileData:
        """The profile in a file ``*.xplane.pb``. ValueError if it holds something else."""
        with open(proto_file_path, "rb") as file:
            return ProfileData.from_serialized_xspace(file.read())

    @staticmethod
    def from_serialized_xspace(serialized_xspace: bytes) -> ProfileData:
        """The profile in the bytes of such a file. ValueError if they hold something else."""
        return ProfileData(
            [ProfilePlane(plane) for tag, plane in fields(serialized_xspace) if tag == 1 and isinstance(plane, bytes)]
        )

    @staticmethod
    def from_text_proto(text: str, /) -> ProfileData:
        """Not available: NotImplementedError names `from_file`."""
        raise NotImplementedError(
            "ProfileData.from_text_proto: profiles are read in their binary form. Use ProfileData.from_file or from_serialized_xspace."
        )

    @property
    def planes(self) -> Iterator[ProfilePlane]:
        """The planes, in the order of the file."""
        return iter(self._planes)

    def find_plane_with_name(self, name: str) -> ProfilePlane | None:
        """The plane of that name; None if there is none."""
        return next((plane for plane in self._planes if plane.name == name), None)
