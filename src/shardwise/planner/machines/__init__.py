"""Machines by name. In: ``v5p-256``, ``2x-v6e-256``, ``h100-8x16``, ``cpu-2x16``, ``here`` (this one), or the path of a file.

Out: a `Machine`. One TOML file describes a generation, with the source of each figure; `slices` says which slices there are of it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from shardwise.planner.machine import Machine
from shardwise.planner.machines.here import this_machine
from shardwise.planner.machines.slices import make_machine, usual_names

HERE = "here"
_FOLDER = Path(__file__).parent
_NAME = re.compile(r"(?:(?P<slices>\d+)x-)?(?P<generation>.+?)(?:[-:](?P<size>\d+(?:x\d+)*))?$")


def find(name: str) -> Machine:
    """The machine of that name: ``[Nx-]GENERATION-SIZE``, where SIZE is a count, a shape or, of clusters, nodes and what is in one.

    A path of a TOML file (it ends in ``.toml``) describes a generation of the user's own; ``FILE.toml-SIZE`` takes a slice of it.

    >>> find("v5p-256").devices, find("v5p-256").levels[0].shape
    (128, (4, 4, 8))

    Raises:
        ValueError: no machine has that name; the message lists the nearest ones.
        FileNotFoundError: there is no such file.
    """
    match = _NAME.fullmatch(name.strip())
    if match is None or not name.strip():
        raise _unknown_machine_error(name)
    if name.strip() == HERE:
        return this_machine()
    generation, size = match["generation"], match["size"]
    slices = int(match["slices"] or 1)
    if generation.endswith(".toml"):
        table = _read_user_file(generation)
        return make_machine(table, name, size, slices)
    files = _generations()
    if generation.lower() not in files:
        whole = f"{generation}-{size}" if size else generation
        if whole.lower() not in files:
            raise _unknown_machine_error(name)
        generation, size = whole, None
    return make_machine(_read(files[generation.lower()]), name, size, slices)


def find_kind(kind: str, devices: int) -> Machine | None:
    """The smallest usual machine of chips of that `device_kind` with at least so many devices; None if no machine has such chips.

    >>> find_kind("TPU v5p", 100).name
    'v5p-256'
    """
    for path in sorted(set(_generations().values())):
        table = _read(path)
        if table["chip"]["kind"] != kind:
            continue
        machines = [make_machine(table, name, name.rpartition("-")[2]) for name in usual_names(table)]
        enough = [machine for machine in machines if machine.devices >= devices]
        if enough:
            return enough[0]
        largest = machines[-1]
        slices = -(-devices // largest.devices)
        return make_machine(table, f"{slices}x-{largest.name}", largest.name.rpartition("-")[2], slices)
    return None


def neighbours(name: str) -> tuple[str, ...]:
    """The machines of half and of twice the size, where there are such.

    >>> neighbours("v5p-256"), neighbours("h100-8x16"), neighbours("2x-v6e-256")
    (('v5p-128', 'v5p-512'), ('h100-8x8', 'h100-8x32'), ('1x-v6e-256', '4x-v6e-256'))
    """
    match = _NAME.fullmatch(name.strip())
    if match is None or not (match["slices"] or match["size"]):
        return ()
    head, number, tail = ("", match["slices"], name.strip()[match.end("slices") :]) if match["slices"] else (
        *re.split(r"(\d+)$", name.strip())[:2], "")  # fmt: skip
    found: list[str] = []
    for size in (int(number) // 2, int(number) * 2):
        other = f"{head}{size}{tail}"
        try:
            if size and int(number) != size and find(other).devices != find(name).devices:
                found.append(other)
        except (ValueError, OSError):
            continue
    return tuple(found)


def names() -> tuple[str, ...]:
    """The usual names of all machines; other sizes and shapes work as well."""
    return tuple(name for path in sorted(set(_generations().values())) for name in usual_names(_read(path)))


@cache
def _generations() -> dict[str, str]:
    """Paths of the files by the names of their generations, aliases included."""
    generation_by_name: dict[str, str] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        table = _read(str(path))
        for known_name in (table["name"], *table.get("aliases", ())):
            generation_by_name[known_name] = str(path)
    return generation_by_name


@cache
def _read(path: str) -> Mapping[str, Any]:
    with open(path, "rb") as file:
        return tomllib.load(file)


def _read_user_file(path: str) -> Mapping[str, Any]:
    try:
        return _read(os.path.abspath(os.path.expanduser(path)))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is no TOML file: {error}.") from error


def _near(name: str, generations: Sequence[str]) -> list[str]:
    """Names of machines like `name`: with another generation, or with another size."""
    head, *rest = re.split(r"(?=[-:])", name, maxsplit=1)
    near_names: list[str] = []
    for near in difflib.get_close_matches(head, generations, n=3, cutoff=0.6):
        if near == head:
            usual = usual_names(_read(_generations()[near]))
            near_names += difflib.get_close_matches(name, usual, n=1, cutoff=0.0)
        elif (match := _NAME.fullmatch(near + "".join(rest))) and match["generation"] == near:
            near_names.append(match[0])
    return near_names


def _unknown_machine_error(name: str) -> ValueError:
    generations = sorted(_generations())
    close = _near(name.lower(), generations)
    hint = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    return ValueError(
        f"No machine is called {name!r}. {hint}There are {', '.join(generations)}, each with a size, as in 'v5p-256', 'v6e-8x8', "
        "'2x-v6e-256', 'h100-8x16' (16 nodes of 8) or 'cpu-2x16' (2 nodes of 16 cores); 'here' is this machine; or give the path of "
        "a .toml file."
    )
