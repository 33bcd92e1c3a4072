"""Chakra traces: read back with a decoder written from the schema, and compared with the plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import plan
from shardwise.plan.report.chakra import write_chakra
from shardwise.planner.result import Interval, Plan, Schedule, Task
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.plan.report.made import plan_of

FIELDS = {7: "int32", 9: "int64", 13: "uint64", 27: "bool", 29: "string"}


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        assert at + size <= len(data)
        yield data[at : at + size]
        at += size


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value
        else:
            assert key & 7 == 0
            yield key >> 3, value


def node(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"deps": []}
    for tag, value in fields(data):
        if tag == 10:
            parts = dict(fields(value))
            kind = next(t for t in parts if t > 2)
            found[parts[1].decode()] = parts[kind].decode() if FIELDS[kind] == "string" else parts[kind]
        elif tag == 5:
            at = 0
            while at < len(value):
                dep, at = varint(value, at)
                found["deps"].append(dep)
        else:
            found[{1: "id", 2: "name", 3: "type", 6: "start", 7: "micros"}[tag]] = value
    return found


def read(file) -> list[dict[str, Any]]:
    first, *nodes = messages(file.read_bytes())
    assert dict(fields(first)) == {1: b"0.0.4"}
    return [node(n) for n in nodes]


def test_a_rank_has_the_tasks_of_its_plan(tmp_path):
    plan = plan_of(layers=3)
    *files, groups = write_chakra(plan, tmp_path, ranks=10)
    assert [f.name for f in files] == [f"train_step.{i}.et" for i in range(10)]
    members = json.loads(groups.read_text())
    for rank, file in enumerate(files):
        nodes = read(file)
        assert [n["name"] for n in nodes] == [b"all_gather", b"dot_general", b"fused: mul add tanh"] * 3 + [
            b"fused: mul sub"
        ]
        assert [n["id"] for n in nodes] == list(range(10))
        assert all(d < n["id"] for n in nodes for d in n["deps"])
        gather, product = nodes[:2]
        assert gather["type"] == 7 and gather["comm_type"] == 2
        assert gather["comm_size"] == int(3e8 / 7)
        mine = members[gather["pg_name"]]
        # mesh data=2 fsdp=8 model=8, row by row: 8 ranks that are 8 apart
        assert rank in mine and [b - a for a, b in pairwise(mine)] == [8] * 7
        assert product["type"] == 4 and product["num_ops"] == int(9e12) and product["micros"] == 20000
    assert sum(map(len, members.values())) == 128


def test_permutes_are_sends_and_receives(tmp_path):
    task = Task("permute", "collective", "ici", 0.0, 1e-3, sent_bytes=100.0, axes=("x",), pattern="shift")
    plan = Plan(
        "f",
        "m",
        "c",
        6,
        {"x": 3, "y": 2},
        1,
        0,
        0,
        0,
        0,
        0,
        (),
        (),
        Schedule((task,), 1e-3),
        Interval(0, 1e-3, 1),
        0,
        0,
        1,
    )
    *files, _ = write_chakra(plan, tmp_path)
    assert len(files) == 6
    for rank, file in enumerate(files):
        send, receive = read(file)
        assert (send["type"], receive["type"]) == (5, 6)
        assert send["comm_dst"] == (rank + 2) % 6 and receive["comm_src"] == (rank - 2) % 6
        assert send["comm_size"] == 100


def test_what_a_collective_is_follows_from_who_sends_to_whom(tmp_path):
    mesh = jax.sharding.AbstractMesh((8,), ("x",))
    x = jax.ShapeDtypeStruct((4096,), "float32", sharding=NamedSharding(mesh, PartitionSpec("x")))
    first, *_ = write_chakra(plan(lambda x: (jnp.sort(x), x.sum()), x, on="v5e-8"), tmp_path)
    kinds = {n["name"]: (n["type"], n.get("comm_type")) for n in read(first) if n["type"] != 4}
    assert kinds == {b"sort": (7, 6), b"all_reduce": (7, 0)}  # a sort sends parts to all


@pytest.mark.parametrize("ranks", [0, -1, 129])
def test_ranks_that_there_are_not(tmp_path, ranks):
    with pytest.raises(ValueError, match="give 1 to 128"):
        write_chakra(plan_of(layers=1), tmp_path, ranks=ranks)


def test_too_many_tasks_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("shardwise.plan.report.chakra.NODES", 10)
    with pytest.raises(ValueError, match="more than 10 tasks"):
        write_chakra(plan_of(layers=40), tmp_path)
