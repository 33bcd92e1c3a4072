"""Times the programs of `gpu_kernels` and `gpu_models` on the GPU at hand, with real JAX; `gpu` sets the planner beside the record.

    python gpu_measure.py --to FILE.json [--texts FILE.gz] [NAME ...]

Run where JAX finds a GPU; nothing of shardwise is needed there. Per program: seconds of a call, the least mean of several rounds in which
calls wait in the device's queue; bytes as the compiler says them; kernels with their seconds, from JAX's profiler.
"""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.modules.setdefault("planning", __import__("types").ModuleType("planning")).__path__ = [
        str(Path(__file__).parent)
    ]

from planning.gpu_kernels import Operand, is_operand, struct
from planning.gpu_unseen import ALL, UNSEEN

SECONDS, ROUNDS, TRACED = 0.12, 3, 3


def array(o: Operand) -> jax.Array:
    """An array as the operand says."""
    key = jax.random.key(sum(o.shape))
    if o.below:
        return jax.random.randint(key, o.shape, 0, o.below).astype(o.dtype)
    if o.positive:
        x = jax.random.normal(key, o.shape, o.dtype)
        return x @ jnp.swapaxes(x, -1, -2) / o.shape[-1] + jnp.eye(o.shape[-1], dtype=o.dtype)
    scale = 1 / max(1.0, o.shape[-2] if len(o.shape) > 1 else 1.0) ** 0.5
    return (scale * jax.random.normal(key, o.shape, o.dtype)).astype(o.dtype)


def wide(name: str) -> Any:
    """The context of a program whose name says that it computes in float64."""
    return jax.enable_x64(name.startswith("float64"))


def compiled(name: str) -> tuple[Any, float]:
    """The executable of a program, and the seconds that it took to make."""
    with wide(name):
        f, args = ALL[name]()
        structs = jax.tree.map(struct, args, is_leaf=is_operand)
        begin = time.perf_counter()
        return jax.jit(f).lower(*structs).compile(), time.perf_counter() - begin


def measured(name: str, executable: Any) -> dict[str, Any]:
    """What a program takes."""
    with wide(name):
        _, args = ALL[name]()
        args = jax.tree.map(array, args, is_leaf=is_operand)
        jax.block_until_ready(args)
        out = jax.block_until_ready(executable(*args))
        begin = time.perf_counter()
        jax.block_until_ready(executable(*args))
        once = time.perf_counter() - begin
        count = max(1, min(500, int(SECONDS / once)))
        rounds: list[float] = []
        host: list[float] = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(count):
                out = executable(*args)
            host.append((time.perf_counter() - begin) / count)
            jax.block_until_ready(out)
            rounds.append((time.perf_counter() - begin) / count)
        said = executable.memory_analysis()
        memory = {k: getattr(said, f"{k}_size_in_bytes") for k in ("argument", "output", "alias", "temp")}
        memory["peak"] = getattr(said, "peak_memory_in_bytes", 0)
        facts: dict[str, Any] = {
            "seconds": min(rounds),
            "once": once,
            "host": min(host),
            "rounds": rounds,
            "memory": memory,
        }
        facts["kernels"] = kernels(executable, args)
        return facts


def kernels(executable: Any, args: Any) -> dict[str, float]:
    """How many kernels a call runs, and their seconds."""
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder)
        for _ in range(TRACED):
            out = executable(*args)
            jax.block_until_ready(out)
        jax.profiler.stop_trace()
        count = seconds = 0.0
        for path in glob.glob(f"{folder}/**/*.xplane.pb", recursive=True):
            for plane in jax.profiler.ProfileData.from_file(path).planes:
                if "/device:" not in plane.name:
                    continue
                for line in plane.lines:
                    if not line.name.startswith("Stream"):
                        continue
                    for event in line.events:
                        count += 1 / TRACED
                        seconds += event.duration_ns * 1e-9 / TRACED
    return {"count": count, "seconds": seconds}


def main() -> None:
    """Compile all programs side by side, then run one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="these programs; all by default")
    parser.add_argument("--to", type=Path, required=True, help="the record, JSON")
    parser.add_argument("--texts", type=Path, help="where to write the compiled programs as text, gzip")
    parser.add_argument("--unseen", action="store_true", help="only those of `gpu_unseen`")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which no further program is begun")
    given = parser.parse_args()
    begin = time.perf_counter()
    names = given.names or list(UNSEEN if given.unseen else ALL)
    record: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "programs": {}}
    texts: dict[str, str] = {}
    with ThreadPoolExecutor(12) as pool:
        made: dict[str, Future[tuple[Any, float]]] = {name: pool.submit(compiled, name) for name in names}
        for name, future in made.items():
            try:
                future.result()
            except Exception as error:
                record["programs"][name] = {"error": f"{type(error).__name__}: {error}"[:500]}
    print(f"compiled after {time.perf_counter() - begin:.0f} s", flush=True)
    for name, future in made.items():
        if name in record["programs"] or time.perf_counter() - begin > given.until:
            continue
        executable, seconds = future.result()
        texts[name] = executable.as_text()
        try:
            record["programs"][name] = facts = {"compile": seconds, **measured(name, executable)}
            print(f"{name}: {1e3 * facts['seconds']:.4f} ms", flush=True)
        except Exception as error:
            record["programs"][name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            print(name, record["programs"][name], flush=True)
        given.to.write_text(json.dumps(record))
    if given.texts:
        given.texts.write_bytes(gzip.compress(json.dumps(texts).encode()))
    print(f"done after {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
