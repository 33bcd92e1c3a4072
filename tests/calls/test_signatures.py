"""Every public function, class and method has JAX's name, parameters and defaults, in both eras.

One signature serves both dialects: what only one era has is a parameter, too. `test_eras` tells what the other dialect makes of it.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardwise.base import config
from tests.calls import signatures as record
from tests.calls.signature_differences import DIFFERENT, LACKING, NOT_BUILT
from tests.oracles import require

_FITS = {0: (0, 1), 1: (1,), 2: (2,), 3: (1, 3), 4: (4,)}  # kinds that take what a kind takes


def named(parameters: list[record.Parameter] | None) -> dict[str, record.Parameter]:
    return {p[0]: p for p in parameters or () if p[0]}


def difference(theirs: list[record.Parameter], ours: list[record.Parameter], other: Any, exact: bool) -> str:
    """What a caller of `theirs` would find in `ours`; '' for nothing. `other` is the signature of the other era."""
    mine, others = named(ours), named(other)
    for name, (_, kind, default) in named(theirs).items():
        if name not in mine:
            return f"lacks {name}"
        _, my_kind, my_default = mine[name]
        _, other_kind, other_default = others.get(name, (name, kind, default))
        if my_kind not in _FITS[kind] or (exact and my_kind not in (kind, other_kind)):
            return f"kind of {name}"
        sentinel = "..." in (default, other_default) and my_default is not None  # it says that nothing was given
        if my_default not in (default, other_default) and not sentinel:
            return f"default of {name}"
    for name in mine:
        if name not in named(theirs) and name not in others:
            return f"adds {name}"
    for kind in (2, 4):
        has = [any(p[1] == kind for p in parameters) for parameters in (ours, theirs, other or theirs)]
        if has[0] not in has[1:]:
            return "stars"
    order = [p[0] for p in theirs if p[0] and p[1] < 2]
    if [p[0] for p in ours if p[0] in order and p[1] < 2] != order:
        return "order"
    if sum(p[1] == 0 for p in theirs) > sum(p[1] < 2 for p in ours):
        return "positions"
    return ""


@pytest.fixture(scope="module")
def eras() -> dict[str, dict[str, Any]]:
    pytest.importorskip("jax")
    return {"seed": record.recorded(), "latest": record.signatures("jax")}


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_signatures(dialect: str, eras: dict[str, dict[str, Any]]) -> None:
    theirs, others = eras[dialect], eras["latest" if dialect == "seed" else "seed"]
    before = config.shardwise_dialect
    config.update("shardwise_dialect", dialect)
    try:
        ours = record.signatures("shardwise", theirs)
    finally:
        config.update("shardwise_dialect", before)
    assert len(theirs) > 1500
    known = {f"{module}.{name}" for module, (_, names) in NOT_BUILT.items() for name in names.split()}
    lacking = [p for p in theirs if p not in ours and p not in known and not any(re.match(r, p) for r, _ in LACKING)]
    assert sorted(known & {*ours}) == []
    found = [
        f"{path}: {said}"
        for path, parameters in theirs.items()
        if parameters is not None
        and ours.get(path) is not None
        and (said := difference(parameters, ours[path], others.get(path), dialect == "latest"))
    ]
    new = [
        f
        for f in found
        if not any(
            re.fullmatch(r, f) or re.fullmatch(r, f"{dialect} {f}") or re.fullmatch(r, f.partition(":")[0])
            for r, _ in DIFFERENT
        )
    ]
    assert (lacking, new) == ([], [])


@pytest.mark.record
def test_the_record_is_the_jax_of_the_seeds(tmp_path: Any) -> None:
    python = require("seed")
    script = tmp_path / "signatures.py"
    script.write_text(Path(str(record.__file__)).read_text())
    subprocess.run([python, script], check=True, timeout=300)
    made = json.loads(lzma.decompress((tmp_path / record.RECORD.name).read_bytes()))
    assert made == record.recorded()
