"""Bytes that a device sends in the programs that XLA's partitioner makes: asked of JAX, kept in `xla.json` and `xla_random.json`.

python -m tests.traffic.xla [NAME ...]        all programs, or some: needs JAX, takes minutes
python -m tests.traffic.xla --random          the random ones
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.traffic.programs import TABLE
from tests.traffic.random_programs import random_entry

RECORD = Path(__file__).with_name("xla.json")
RANDOM = Path(__file__).with_name("xla_random.json")
SEEDS = 250
_SIZES = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "bf16": 2,
    "f16": 2,
    "s32": 4,
    "u32": 4,
    "f32": 4,
    "s64": 8,
    "u64": 8,
    "f64": 8,
    "c64": 8,
    "c128": 16,
    "f8e4m3fn": 1,
    "f8e5m2": 1,
}
_COLLECTIVE = re.compile(
    r"^\s*(?:ROOT )?%[\w.\-]+ = (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\((.*)$"
)
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")


def _nbytes(text: str) -> int:
    return sum(
        _SIZES[kind] * math.prod(int(n) for n in shape.split(",") if n)
        for kind, shape in re.findall(r"(\w+)\[([\d,]*)\]", text)
        if kind in _SIZES
    )


def _group(attributes: str) -> int:
    """Devices of one group."""
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", attributes)
    if listed:
        return len(listed[1].split(","))
    tiled = re.search(r"replica_groups=\[(\d+),(\d+)\]", attributes)
    return int(tiled[2]) if tiled else 8


def sent(kind: str, result: int, n: int) -> int:
    """Bytes that a device of `n` sends for a result of so many bytes, around a ring."""
    if kind == "collective-permute":
        return result
    if kind == "reduce-scatter":
        return (n - 1) * result
    return (2 if kind == "all-reduce" else 1) * (n - 1) * result // n


def traffic(text: str) -> dict[str, int]:
    """The bytes by kind that a device sends in the program of this text, loops times their trips where these are known."""
    bodies: dict[str, list[str]] = {}
    entry, current = "", ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            current = head[2]
            entry = current if head[1] else entry
        bodies.setdefault(current, []).append(line)
    found: Counter[str] = Counter()

    def walk(name: str, times: int) -> None:
        for line in bodies.get(name, ()):
            collective = _COLLECTIVE.match(line)
            if collective:
                result, kind, rest = collective.groups()
                n = _group(rest)
                if n > 1:
                    found[kind] += times * sent(kind, _nbytes(result), n)
                continue
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
            called = re.findall(
                r"(?:body|calls|branch_computations|true_computation|false_computation)=\{?([^,}]+(?:, %[^,}]+)*)", line
            )
            if " call(" in line:
                called += re.findall(r"to_apply=([^,}]+)", line)
            for names in called:
                for each in re.findall(r"%([\w.\-]+)", names):
                    walk(each, times * (int(trips[1]) if trips else 1))

    walk(entry, 1)
    return dict(sorted(found.items()))


def asked(names: Iterable[str]) -> dict[str, dict[str, int]]:
    """What XLA sends in these programs."""
    return {name: traffic(TABLE[name].compiled("jax").as_text()) for name in names}


def main(chosen: list[str]) -> None:
    """Ask JAX about the programs and keep what it says."""
    os.environ |= {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
    if chosen == ["--random"]:
        sent = {seed: sum(traffic(random_entry(seed).compiled("jax").as_text()).values()) for seed in range(SEEDS)}
        RANDOM.write_text(json.dumps(sent) + "\n")
        return
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record |= asked(chosen or TABLE)
    RECORD.write_text(json.dumps({name: record[name] for name in TABLE if name in record}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
