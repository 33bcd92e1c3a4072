"""Programs as people can read them: repeated layers once, and lines that fit.

In: a program and the lines of its text. Out: fewer and shorter lines.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from shardwise.ir import Equation, ExactParams, Literal, Program

_LEAST = 8  # lines that a note about layers has to save
_LONGEST = 1000  # equations of a layer
_TRIED_LENGTHS = 16  # lengths of a layer, the next places where its first equation occurs


def with_layers_once(program: Program, lines: Sequence[str]) -> list[str]:
    """The lines of a program's text, where equations that come several times in a row stand once, with a note how often they come."""
    starts = equation_starts(program, lines)
    if starts is None:
        return list(lines)
    ends = [*starts[1:], _end(lines, starts)]
    kept_lines = list(lines[: starts[0]]) if starts else list(lines)
    for first, count, times in _runs([_key(e) for e in program.equations]):
        kept_lines += lines[starts[first] : ends[first + count - 1]]
        if times > 1:
            often = "once more" if times == 2 else f"{times - 1} times more"
            kept_lines.append(f"    ... and the last {count} equations {often}, on other values")
    return kept_lines + list(lines[ends[-1] :]) if starts else kept_lines


def equation_starts(program: Program, lines: Sequence[str]) -> list[int] | None:
    """Per equation the first of its lines in the program's text; None if the program stands on one line."""
    starts = [i for i, line in enumerate(lines) if line.startswith("    ") and line[4:5] not in ("", " ")]
    return starts if len(starts) == len(program.equations) else None


def _end(lines: Sequence[str], starts: Sequence[int]) -> int:
    """The line behind the last equation and what it holds."""
    at = starts[-1] + 1 if starts else len(lines)
    while at < len(lines) and lines[at].startswith("    "):
        at += 1
    return at


def _key(eqn: Equation) -> Hashable:
    """The key that equations share that do the same on other values; programs that they hold are compared by identity."""
    types = tuple(v.aval for v in eqn.outputs)
    operands = tuple(repr(a) if isinstance(a, Literal) else a.aval for a in eqn.inputs)
    try:
        key = (eqn.op, ExactParams(eqn.params), operands, types, eqn.source)
        hash(key)
    except TypeError:  # a param that has no hash
        return id(eqn)
    return key


def _runs(keys: Sequence[Hashable]) -> Iterator[tuple[int, int, int]]:
    """(first, count, times): the keys in order, as stretches of `count` that occur `times` times in a row."""
    places: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    i = 0
    while i < len(keys):
        later = [j - i for j in places[keys[i]] if i < j <= i + _LONGEST][:_TRIED_LENGTHS]
        best_run = max(((_times(keys, i, n), n) for n in later), key=lambda f: (f[0] * f[1], -f[1]), default=(1, 1))
        times, count = best_run
        if (times - 1) * count >= _LEAST:
            yield i, count, times
            i += times * count
        else:
            yield i, 1, 1
            i += 1


def _times(keys: Sequence[Hashable], first: int, count: int) -> int:
    """How often the `count` keys from `first` on stand there in a row."""
    layer = keys[first : first + count]
    times = 1
    while keys[first + times * count : first + (times + 1) * count] == layer:
        times += 1
    return times


def fit_lines(lines: Sequence[str], width: int | None) -> list[str]:
    """The lines cut to `width` characters; their source lines, behind a `#`, stay."""
    return list(lines) if width is None else [_cut(line, width) for line in lines]


def _cut(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    code, mark, source = line.rpartition("  # ")
    tail = f"{mark}{source}" if mark else ""
    code = (code if mark else line).rstrip()
    room = width - len(tail)
    if room < 20:  # a narrow window: the beginning says most
        return line[: max(width - 1, 0)] + "…"
    return (code if len(code) <= room else code[: room - 1] + "…") + tail
