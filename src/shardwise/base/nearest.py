"""The names that a misspelled word may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """`` Did you mean 'psum'?``, to be put behind a message; empty if nothing known comes near."""
    from difflib import get_close_matches  # for start-up time

    near = get_close_matches(str(word), [str(name) for name in known], 1)
    return f" Did you mean {near[0]!r}?" if near else ""
