"""How many programs print as JAX's: `python -m tests.calls.texts` traces two calls of each function in the table by both libraries.

It prints the number of equal texts, and those ops that most often make others differ: ``-`` for ops that only JAX's have, ``+`` for ours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import shardwise
from tests.calls.beside import Library, outcome
from tests.calls.table import Call, calls, tables


def chosen() -> Iterator[Call]:
    """Two calls of each function that has arrays among its arguments."""
    for module, (lines, _) in tables().items():
        seen: Counter[str] = Counter()
        for call in calls(module, lines):
            if not call.then and any(a.letters for a in call.arguments) and seen[call.name] < 2:
                seen[call.name] += 1
                yield call


def text(library: Library, call: Call) -> Any:
    """The program of a call, whose arrays are the arguments; or the failure it ends in."""
    letters = sorted({letter for a in call.arguments for letter in a.letters})

    def on_arrays(*arrays: Any) -> Any:
        return library.run(call, {**library.arrays, **dict(zip(letters, arrays, strict=True))})

    return outcome(lambda: str(library.jax.make_jaxpr(on_arrays)(*[library.arrays[letter] for letter in letters])))


def main() -> None:
    """Print the measure."""
    shardwise.config.update("shardwise_dialect", "latest")
    ours, theirs = Library("shardwise"), Library("jax")
    equal, tried, apart = 0, 0, Counter[str]()
    for call in chosen():
        want = text(theirs, call)
        if isinstance(want, str):
            found = text(ours, call)
            tried, equal = tried + 1, equal + (found == want)
            a, b = (set(re.findall(r"= ([\w-]+)", str(t))) for t in (want, found))
            apart.update([f"-{op}" for op in a - b] + [f"+{op}" for op in b - a])
    print(f"{equal} of {tried} texts are equal")
    print(", ".join(f"{op} {n}" for op, n in apart.most_common(12)))


if __name__ == "__main__":
    main()
