"""Vectors of odd widths, as rows of three elements give them, on their way from block to block.

LLVM widens a vector of 48 floats to 64 within a block, but hands it to another block as 48 scalars, which takes hundreds of times as long
to compile, and longer to run. So a value that leaves its block is widened to a power of two where it is made, and narrowed where it is
used; neither is an instruction in the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_RESULT = re.compile(r"\s+(%[\w.]+) = (.*)")
_LABEL = re.compile(r"([\w.]+):")
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_NAME = re.compile(r"%[\w.]+")
_WAY = re.compile(r"\[ (.+?), (%[\w.]+) \]")

Kind = tuple[int, str]  # lanes and their type


def is_odd(width: int) -> bool:
    """Whether a number of lanes is no power of two."""
    return width & (width - 1) != 0


def whole_width(width: int) -> int:
    """The next power of two."""
    return 1 << (width - 1).bit_length()


def carry_whole(lines: Iterable[str]) -> list[str]:
    """The lines of a function, in which no vector of an odd width goes from block to block."""
    lines = list(lines)
    kinds = dict(_odd_results(lines))
    abroad = set(_names_abroad(lines, kinds))
    out: list[str] = []
    label, here, starts = "", dict[str, str](), list[str]()
    for line in lines:
        if match := _LABEL.match(line):
            label, here = match[1], {}
            out.append(line)
            continue
        match = _RESULT.match(line)
        name, text = match.groups() if match else ("", line.lstrip())
        if text.startswith("phi "):
            if name in kinds:
                starts.append(_narrow(name, name, kinds[name][1]))
                line = _whole_phi(name, text, kinds[name][1])
            out.append(line)
            continue
        out += starts
        starts.clear()
        for operand in dict.fromkeys(_NAME.findall(text)):
            if operand not in abroad or kinds[operand][0] == label:
                continue
            if operand not in here:
                here[operand] = f"{operand}.{label}"
                out.append(_narrow(here[operand], operand, kinds[operand][1]))
            line = re.sub(f"{re.escape(operand)}(?![\\w.])", here[operand], line)
        out.append(line)
        if name in abroad:
            out.append(_widen(name, kinds[name][1]))
    return out


def _odd_results(lines: Iterable[str]) -> Iterator[tuple[str, tuple[str, Kind]]]:
    """The block and the kind of each vector of an odd width, by name."""
    label = ""
    for line in lines:
        if match := _LABEL.match(line):
            label = match[1]
        elif (match := _RESULT.match(line)) and (kind := _kind(match[2])) and is_odd(kind[0]):
            yield match[1], (label, kind)


def _kind(text: str) -> Kind | None:
    """The kind of vector that an instruction makes; None for scalars."""
    match = _VECTOR.findall(text)
    word = text.partition(" ")[0]
    if not match or word in ("extractelement", "store"):
        return None
    width, kind = match[0]
    if word == "shufflevector":
        width = match[-1][0]
    elif word in ("icmp", "fcmp"):
        kind = "i1"
    elif word == "select":
        width, kind = match[1] if text.startswith("select <") else match[0]
    elif " to " in text:  # a conversion
        return (int(match[-1][0]), match[-1][1]) if text.endswith(">") else None
    elif word in ("call", "getelementptr") and not re.match(r"\w+ (?:[a-z]+ )*<", text):
        return None
    return int(width), kind


def _names_abroad(lines: Iterable[str], kinds: dict[str, tuple[str, Kind]]) -> Iterator[str]:
    """The values that other blocks use."""
    label = ""
    for line in lines:
        if match := _LABEL.match(line):
            label = match[1]
            continue
        text = match[2] if (match := _RESULT.match(line)) else line
        joins = text.startswith("phi ")
        for operand in _NAME.findall(text):
            if operand in kinds and (joins or kinds[operand][0] != label):
                yield operand


def shuffle(source: str, kind: Kind, lanes: int) -> str:
    """The instruction that takes the first lanes of a vector; beyond its own they hold anything."""
    v = f"<{kind[0]} x {kind[1]}>"
    mask = ", ".join(f"i32 {i if i < kind[0] else 'poison'}" for i in range(lanes))
    return f"shufflevector {v} {source}, {v} poison, <{lanes} x i32> <{mask}>"


def _widen(name: str, kind: Kind) -> str:
    return f"  {name}.whole = {shuffle(name, kind, whole_width(kind[0]))}"


def _narrow(name: str, source: str, kind: Kind) -> str:
    return f"  {name} = {shuffle(f'{source}.whole', (whole_width(kind[0]), kind[1]), kind[0])}"


def _whole_phi(name: str, text: str, kind: Kind) -> str:
    full, type = whole_width(kind[0]), kind[1]

    def way(match: re.Match[str]) -> str:
        value, block = match.groups()
        if value.startswith("%"):
            value += ".whole"
        elif value.startswith("<"):
            value = f"{value[:-1]}{f', {type} poison' * (full - kind[0])}>"
        return f"[ {value}, {block} ]"

    instruction = text.partition(" ")[0]
    return f"  {name}.whole = {instruction} <{full} x {type}> {', '.join(map(way, _WAY.finditer(text)))}"
