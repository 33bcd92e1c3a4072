"""Origins of arrays over several processes: numbers that are equal if the arrays were computed alike.

Comes in: each call of a program over several processes, with the digest of the program and the origins of its operands. Goes out:
the origin of its results, a 62-bit number. The parts of one array have one origin on all processes; results of
different programs, or of one program for different values, have different origins. No message is needed for it: an exchange compares
the origins of its operands in the number that the processes compare anyway.

What a process brings itself has an origin, too: a replicated value by its content, a part of a split array by the array's type
and how many such arrays the process has made, because nobody else has seen the part.
"""

from __future__ import annotations

import threading

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import free_lock

MASK = (1 << 62) - 1
RECENT = 48  # calls that an error looks back on
FEW = 4096  # calls noted before they are added up


@dataclass(frozen=True)
class SharedProgram:
    """One of the programs that processes run together, as the others may hear of it."""

    ranks: tuple[int, ...]
    name: str
    number: int  # stands for the digest
    line: str  # of the user's code

    def __str__(self) -> str:
        return f"{self.name} (compiled for {self.line})" if self.line else self.name


class History:
    """The history of this process's computations with arrays over several processes.

    `notes` are the latest calls: the origin of their results, and the program. Whoever adds to them calls `shorten` once there
    are more than `FEW`.
    """

    def __init__(self) -> None:
        self.notes: list[tuple[int, SharedProgram]] = []
        self._before: list[tuple[int, SharedProgram]] = []  # the latest of those that are added up
        self._totals: dict[tuple[int, ...], tuple[int, int]] = {}
        self._made: dict[tuple[tuple[int, ...], int], int] = {}
        self._lock = free_lock()

    def shorten(self, keep: int = RECENT) -> None:
        """Add up all notes but the latest."""
        with self._lock:
            done = self.notes[: max(len(self.notes) - keep, 0)]
            del self.notes[: len(done)]  # others may append meanwhile
            self._before = [*self._before, *done][-FEW:]
            for origin, program in done:
                count, total = self._totals.get(program.ranks, (0, 0))
                self._totals[program.ranks] = count + 1, (total + origin) & MASK

    def totals(self) -> dict[tuple[int, ...], tuple[int, int]]:
        """Per group of processes how many calls there were, and the sum of their origins, whatever their order was."""
        self.shorten(0)
        return dict(self._totals)

    def known_origins(self, ranks: tuple[int, ...]) -> list[int] | None:
        """The origins of all that these processes have computed, as far as this one knows; None if it is too much to keep."""
        self.shorten(0)
        found = [origin for origin, program in self._before if program.ranks == ranks]
        return found if len(found) == self._totals.get(ranks, (0, 0))[0] else None

    def recent(self) -> list[tuple[int, str]]:
        """The latest calls: the origin of their results, and words."""
        return [(origin, str(program)) for origin, program in [*self._before, *self.notes][-RECENT:]]

    def forget(self, ranks: tuple[int, ...]) -> None:
        """These processes know now that they have diverged: they begin anew."""
        self.shorten(0)
        with self._lock:
            self._totals.pop(ranks, None)
            self._before = [note for note in self._before if note[1].ranks != ranks]
            self._made = {key: count for key, count in self._made.items() if key[0] != ranks}

    def make_origin(self, ranks: tuple[int, ...], what: int) -> int:
        """The origin of an array of the kind `what` over `ranks` that this process has just made of its own parts.

        Other threads than the main one make theirs in no certain order: theirs are not counted.
        """
        if threading.current_thread() is not threading.main_thread():
            return what
        with self._lock:
            count = self._made[ranks, what] = self._made.get((ranks, what), 0) + 1
        return hash((what, count)) & MASK


history = History()


def number_of(text: str) -> int:
    """A positive 62-bit number that stands for a text, the same on every process."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 2 | 1
