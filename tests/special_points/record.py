"""The answers of both eras' JAX at the special points, kept in ``recorded.xz``: it takes an hour to compile what gives them.

``python -m tests.special_points.record`` asks about the expressions that have no answer yet, with ``--all`` about each, and notes what
shardwise gives where it differs. Of JAX there are two answers wherever shardwise's is not the compiled one: XLA drops some products by
zero, so that JAX op by op gives another. Either will do.

Keys of the file: ``value.0``, ``jvp.a.0``, ``vjp.a`` for the compiled answer of today's JAX; after ``eager/`` its answer op by op, after
``seed/`` that of the seeds' JAX, after ``ours/`` what shardwise gives: each only where it is not what it is compared with.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from tests import oracles
from tests.special_points import differences, store, table
from tests.special_points.answers import answer
from tests.special_points.comparison import differing, names_of

RECORD = Path(__file__).parent / "recorded.xz"
ROOT = Path(__file__).parent.parent.parent
ERAS = ("latest", "seed")
Answer = dict[str, Any]
Question = tuple[str, bool]  # expression, whether op by op


@functools.cache
def recorded() -> dict[str, Answer]:
    """By expression, by key, all that the file holds."""
    return store.read(RECORD) if RECORD.exists() else {}


def expressions(era: str) -> list[str]:
    """Those that the era's JAX can evaluate."""
    return [e for e in sorted(recorded()) if "absent" not in compiled(recorded()[e], era)]


# -- what is kept ---------------------------------------------------------------------------------------------------------


def _under(kept: Answer, prefix: str) -> Answer:
    return {k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix) and "/" not in k[len(prefix) :]}


def compiled(kept: Answer, era: str) -> Answer:
    """The answer of an era's JAX."""
    plain = _under(kept, "")
    if era == "latest":
        return plain
    own = _under(kept, "seed/")
    lacks = own.pop("without", "").split()
    return own if "absent" in plain or "absent" in own else {k: v for k, v in (plain | own).items() if k not in lacks}


def answers(kept: Answer, era: str) -> list[Answer]:
    """JAX's answers: compiled, and op by op if that was asked."""
    first = compiled(kept, era)
    op_by_op = _under(kept, "seed/eager/" if era == "seed" else "eager/")
    return [first, first | op_by_op] if op_by_op else [first]


def ours(kept: Answer, era: str) -> Answer:
    """What shardwise gives where it differs from all of them."""
    return _under(kept, "seed/ours/" if era == "seed" else "ours/")


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "fcV":
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
        parts = [(a.real, b.real), (a.imag, b.imag)]
        if any((np.signbit(x) != np.signbit(y))[(x == 0) & (y == 0)].any() for x, y in parts):
            return False
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _others(new: Answer, base: Answer, prefix: str) -> Answer:
    return {prefix + k: v for k, v in new.items() if k not in base or not _same(v, base[k])}


def keep_compiled(kept: Answer, era: str, found: Answer) -> None:
    """Put an era's compiled answer in."""
    kept[f"asked/{era}"] = "yes"
    if era == "latest":
        kept |= found
        return
    plain = _under(kept, "")
    kept |= _others(found, {} if "absent" in plain else plain, "seed/")
    lacks = [] if "absent" in plain or "absent" in found else [k for k in plain if k not in found]
    if lacks:
        kept["seed/without"] = " ".join(lacks)


def keep_eager(kept: Answer, era: str, found: Answer) -> None:
    """Put in what an era's JAX gives op by op."""
    prefix = "seed/eager/" if era == "seed" else "eager/"
    kept |= _others(found, compiled(kept, era), prefix)
    kept[f"asked/eager/{era}"] = "yes"


def keep_ours(kept: Answer, era: str, expression: str, found: Answer) -> None:
    """Note what shardwise gives where it differs."""
    prefix = "seed/ours/" if era == "seed" else "ours/"
    for key in [k for k in kept if k.startswith(prefix)]:
        del kept[key]
    theirs = answers(kept, era)
    for key, off in differing(expression, found, theirs).items():
        if off.any():
            kept[prefix + key] = found[key]
    if ("error" in found) != ("error" in theirs[0]):
        kept[f"{prefix}error"] = found.get("error", "none")


# -- asking ---------------------------------------------------------------------------------------------------------------


def ask(era: str, questions: list[Question]) -> dict[str, Answer]:
    """The answers of an era's JAX, from a process of its own."""
    if not questions:
        return {}
    plain = set(table.found().values())
    with tempfile.TemporaryDirectory() as folder:
        given, got = Path(folder, "questions.json"), Path(folder, "answers.xz")
        given.write_text(json.dumps([[e, e not in plain, eager] for e, eager in questions]))
        subprocess.run([oracles.interpreter(era), "-m", "tests.special_points.ask", given, got], cwd=ROOT, check=True)
        return store.read(got)


def evaluated(expression: str, era: str, wrap: Any = lambda f: f) -> Answer:
    """What shardwise gives in a dialect, which the caller has set."""
    import shardwise
    from shardwise.base.dialect import ALIASES, DIALECTS

    assert shardwise.config.dialect is DIALECTS[ALIASES[era]]
    return answer(shardwise, table.library("shardwise"), expression, wrap)


def set_dialect(era: str) -> None:
    """Compute as an era does."""
    import shardwise

    shardwise.config.update("shardwise_dialect", era)


def main() -> None:
    """Fill the file."""
    out: dict[str, Answer] = {} if "--all" in sys.argv else {e: dict(a) for e, a in recorded().items()}
    wanted = table.expressions()
    out = {e: out.get(e, {}) for e in wanted}
    for era in ERAS:
        for e, found in ask(era, [(e, False) for e in wanted if f"asked/{era}" not in out[e]]).items():
            keep_compiled(out[e], era, found)
        set_dialect(era)
        possible = [e for e in wanted if "absent" not in compiled(out[e], era)]
        mine = {e: evaluated(e, era) for e in possible}
        unlike = [
            e for e in possible if names_of(differing(e, mine[e], answers(out[e], era)), mine[e], compiled(out[e], era))
        ]
        for e, found in ask(era, [(e, True) for e in unlike if f"asked/eager/{era}" not in out[e]]).items():
            keep_eager(out[e], era, found)
        for e in possible:
            keep_ours(out[e], era, e, mine[e])
        unknown = {
            e: names_of(differing(e, mine[e], answers(out[e], era)), mine[e], compiled(out[e], era)) for e in unlike
        }
        for e, found in unknown.items():
            if lacking := found - differences.reasons().get(e, {}).keys():
                print(f"{era}: no reason in differences.txt: {' '.join(sorted(lacking))} | {e}")
    store.write(RECORD, out)
    recorded.cache_clear()


if __name__ == "__main__":
    main()
