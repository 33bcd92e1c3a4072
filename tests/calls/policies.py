"""Which calls the promotion settings refuse: rank promotion ('raise' and 'warn') and strict dtype promotion.

JAX's answers are kept in ``policies.json``: ``python -m tests.calls.policies`` asks the JAX of today and writes them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.calls.beside import Failure, Library, outcome
from tests.calls.record import every_call
from tests.calls.table import Call
from tests.differential.oracle import NAMED_ERRORS

RECORD = Path(__file__).with_name("policies.json")
POLICIES: dict[str, Callable[[Any], AbstractContextManager[Any]]] = {
    "rank raise": lambda jax: jax.numpy_rank_promotion("raise"),
    "rank warn": lambda jax: jax.numpy_rank_promotion("warn"),
    "dtype strict": lambda jax: jax.numpy_dtype_promotion("strict"),
}


def _failure(library: Library, call: Call) -> Failure | None:
    """How a call fails where only types are computed; where that needs values, how the call itself fails."""

    def body() -> list[Any]:
        leaves = library.jax.tree.leaves(library.run(call, library.arrays))
        return [x for x in leaves if hasattr(x, "dtype")]

    given = outcome(lambda: library.jax.eval_shape(body))
    if isinstance(given, Failure) and ("oncret" in given.text or "Tracer" in given.text):
        given = outcome(body)
    return given if isinstance(given, Failure) else None


def _warns(library: Library, call: Call) -> bool:
    if library.name == "jax":
        library.jax.clear_caches()  # what is traced already does not warn again
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _without_filter(library, call)
    return any(issubclass(w.category, UserWarning) and "rank_promotion" in str(w.message) for w in caught)


def _without_filter(library: Library, call: Call) -> None:
    try:
        library.jax.eval_shape(lambda: library.jax.tree.leaves(library.run(call, library.arrays)) and None)
    except Exception:
        library.run(call, library.arrays)


def works(library: Library, call: Call) -> bool:
    """Whether the call gives a result without any of the settings."""
    return _failure(library, call) is None


def answer(library: Library, call: Call, policy: str) -> str:
    """What the policy makes of a call that works without it: '' for nothing, 'warns', or the class of the error."""
    with POLICIES[policy](library.jax):
        if policy == "rank warn":
            return "warns" if _warns(library, call) else ""
        failure = _failure(library, call)
    return "" if failure is None else " ".join(sorted({failure.builtin, *NAMED_ERRORS & set(failure.classes)}))


def answers(library: Library, calls: Iterable[Call]) -> dict[str, dict[str, str]]:
    """By policy the calls that it refuses or warns about."""
    found: dict[str, dict[str, str]] = {policy: {} for policy in POLICIES}
    for call in calls:
        if works(library, call):
            for policy, kept in found.items():
                # What 'warn' warns about 'raise' refuses: JAX is not asked twice.
                if policy == "rank warn" and repr(call) not in found["rank raise"]:
                    continue
                if said := answer(library, call, policy):
                    kept[repr(call)] = said
    return found


def recorded() -> dict[str, dict[str, str]]:
    """JAX's answers."""
    return json.loads(RECORD.read_text())


if __name__ == "__main__":
    RECORD.write_text(json.dumps(answers(Library("jax"), every_call()), indent=0) + "\n")
