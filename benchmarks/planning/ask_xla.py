"""What XLA's compiler for CPUs says of programs: `python -m planning.ask_xla FOLDER [NAME ...]` in `benchmarks/`, with JAX installed.

FOLDER has `programs.py` and `hlo.py` (see `programs.py` in this folder). Each program is compiled in a process of its own over as many
virtual devices as it has; `xla.json` keeps its memory and its collectives. That compiler widens bfloat16 before many collectives: they
count in the type that they had before, as the program of the partitioner has it.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from planning.programs import load

RECORD = Path(__file__).with_name("xla.json")
LIMIT_SECONDS = 900
BEFORE_WIDENING = "batched_gather_scatter_normalizer"  # the first pass behind the partitioner and its cleaning
Collective = tuple[str, tuple[str, ...], str, float, float]  # kind, axes, type, bytes sent at a time, times


def asked(folder: Path, name: str) -> dict[str, Any]:
    """In the child: memory and collectives of one program."""
    hlo, programs = load(folder, "hlo"), load(folder, "programs")
    entry = programs.PROGRAMS[name]
    with tempfile.TemporaryDirectory() as dumps:
        os.environ["JAX_NUM_CPU_DEVICES"] = str(entry.devices)
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = (
            f"--xla_backend_optimization_level=0 --xla_dump_to={dumps} --xla_dump_hlo_pass_re={BEFORE_WIDENING}"
        )
        compiled = _compiled(programs, entry)
        (early,) = glob.glob(f"{dumps}/*before_{BEFORE_WIDENING}.txt")
        before = hlo.Module(Path(early).read_text()).collectives(list(entry.mesh))
    after = hlo.Module(compiled.as_text()).collectives(list(entry.mesh))
    memory = compiled.memory_analysis()
    sizes = {k: getattr(memory, f"{k}_size_in_bytes") for k in ("argument", "output", "alias", "temp")}
    return {"memory": sizes, "collectives": _added(_narrowed(before, after))}


def _compiled(programs: Any, entry: Any) -> Any:
    import jax
    import jax.ad_checkpoint
    import jax.numpy as jnp
    import numpy as np

    axes, lengths = zip(*entry.mesh, strict=True)
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(lengths), axes)
    env = programs.Env(jax, jnp, jax.lax, jax.sharding.PartitionSpec, jax.sharding.NamedSharding, mesh)
    function, arguments, keywords = entry.build(env)
    return jax.jit(function, **keywords).lower(*arguments).compile()


def _narrowed(before: list[Any], after: list[Any]) -> list[Any]:
    """The collectives `after` widening; those whose like of so many elements was in bfloat16 count as such."""

    def key(c: Any) -> tuple[str, int, int]:
        itemsize = 2 if c["dtype"] == "bf16" else 4
        return c["kind"], c["group"], int(c["operand_bytes"] // itemsize)

    narrow = Counter(key(c) for c in before if c["dtype"] == "bf16")
    wide = {key(c) for c in before if c["dtype"] == "f32"}
    sizes = {*narrow, *wide}
    all_narrow = {like[:2] for like in narrow} - {like[:2] for like in wide}
    found: list[Any] = []
    for c in after:
        like = key(c)
        if c["dtype"] == "f32" and narrow[like]:
            c = {**c, "dtype": "bf16", "sent_bytes": c["sent_bytes"] / 2}
            narrow[like] -= like in wide  # of as many elements there were both: so many of them were narrow
        elif c["dtype"] == "f32" and like not in sizes and like[:2] in all_narrow:  # a part of one that was split
            c = {**c, "dtype": "bf16", "sent_bytes": c["sent_bytes"] / 2}
        found.append(c)
    return found


def _added(found: list[Any]) -> list[Collective]:
    """One entry for those that are alike in all but how often they run."""
    times: dict[tuple[Any, ...], float] = defaultdict(float)
    for c in found:
        times[c["kind"], tuple(c["axes"] or ()), c["dtype"], c["sent_bytes"]] += c["times"]
    return [(*key, n) for key, n in sorted(times.items())]


def main() -> None:
    """Ask about the programs that the command line names, all by default, and keep the answers."""
    folder, *names = sys.argv[1:]
    if names[:1] == ["--child"]:
        print(json.dumps(asked(Path(folder), names[1])))
        return
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in names or load(Path(folder), "programs").PROGRAMS:
        command = [sys.executable, "-m", "planning.ask_xla", folder, "--child", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
            answer = json.loads(done.stdout.splitlines()[-1])
            record = json.loads(RECORD.read_text()) if RECORD.exists() else {}  # others may ask at the same time
            record[name] = answer
            print(name, "asked", flush=True)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            print(name, type(error).__name__, str(error.stderr or "").strip()[-200:], flush=True)
        RECORD.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in record.items()) + "\n}\n")


if __name__ == "__main__":
    main()
