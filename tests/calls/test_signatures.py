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
from tests.oracles import require

_INSIDE = "an object that JAX makes, not users"
_MORE = "takes more than JAX"
_DEFAULT = "no argument means the same"
# What differs, and why. The first pattern that fits a path and what was found there tells.
DIFFERENT = [
    (r"(ref\.)?(Ref|AbstractRef|Shard)|stages\.(Compiled|Lowered|Traced)|experimental\.checkify\.Error.*|.*\.tree_unflatten", _INSIDE),
    (r".*\.(lower|compile|print): lacks (_private_parameters|_use_logging|device_assignment)", "an option of JAX's inside"),
    (r"(sharding\.)?\w+\.update: adds .*", "JAX's **kwargs, by their names"),
    (r"numpy\.set_printoptions: adds .*", "NumPy's own names instead of *args"),
    (r"seed ad_checkpoint\.(remat|checkpoint): adds (static_argnames|concrete)", "as checkpoint of today"),
    (r"ShapeDtypeStruct: adds .*", _MORE),
    (r"ref\.(set|swap|addupdate): default of \w+|sharding\.Abstract(Device|Mesh): default of \w+", _MORE),
    (r".*stax.*: default of (W|b)_init|test_util\.check_(jvp|vjp): default of eps", _DEFAULT),
    (r".*def_partition: default of \w+_factors", _DEFAULT),
    (r"lax\.dot: .*|make_mesh: .*", "what stands there by position differs between the eras: both are understood"),
    (r"seed jit: lacks fun|seed numpy\.(maximum|minimum): positions", "by position only, as of today"),
    (r"seed lax\.\w+: kind of out_sharding", "by keyword only, as of today"),
    (r"\w+: default of new_val|sharding\.\w+: default of new_val", "JAX raises without it, too"),
    (r".*GSPMDSharding\.get_replicated: lacks device_assignment", "its name is not that of a call by position"),
    (r"sharding\.\w+_axes: default of \w+_sharding", "not given is another thing than None"),
    (r"seed .*: lacks (initial|newshape|interpolation)", "JAX 0.5.3 raises where it is given, too"),
    (r"seed experimental\.(pjit\.pjit|shard_map\.shard_map): .*", "takes also what JAX 0.10 takes"),
    (r"seed experimental\.(layout\.Layout|colocated_python\.colocated_cpu_devices): lacks .*", "as of today"),
    (r"seed experimental\.layout\.with_layout_constraint: .*", "as of today"),
    (r"seed lax\.optimization_barrier: .*", "by position only, as of today"),
]  # fmt: skip
LACKING = [
    (r"experimental\.(jet|ode|shard_map|multihost_utils|pjit)\.|example_libraries\.", "what JAX's module imports or keeps for itself"),
    (r"experimental\.(EArray|cur_qdd|primal_tangent_dtype|layout\.|compute_on\.|colocated_python\.)", _INSIDE),
    (r"(ref\.)?AbstractRef\.|(ref\.)?Ref\.|Device\.|tree_util\.(PyTreeDef|build_tree)", _INSIDE),
    (r"stages\.(Compiled\.call|Lowered\.from_flat_info)", _INSIDE),
    (r"sharding\.(ManualAxisType|make_single_device_sharding)|debug\.\w*Effect|ad_checkpoint\.Offloadable", _INSIDE),
    (r"custom_derivatives\.custom_vjp_primal_tree_values|ds$|errors\.SimplifiedTraceback", _INSIDE),
    (r"profiler\.(Profile|register_subprocess)|profiler\.\w*TraceAnnotation\.", "profiles are Chrome traces"),
    (r"lax\.(RandomAlgorithm|rng_\w+|psend|precv|dce_sink|infeed|outfeed)$", "the page lists them"),
    (r"enable_custom_vjp_by_custom_transpose", "an option without effect"),
]  # fmt: skip

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
    lacking = [p for p in theirs if p not in ours and not any(re.match(r, p) for r, _ in LACKING)]
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
