"""The profiler: which events a trace holds, annotations, and the memory profile."""

from __future__ import annotations

import gzip
import json
import sys
import threading

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax, profiler
from shardwise.ops.devices import parallel
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.transforms.tracing.naming import named_scope


def events_below(folder):
    (path,) = folder.glob("plugins/profile/*/*.trace.json.gz")
    with gzip.open(path, "rt") as file:
        return json.load(file)["traceEvents"]


@pytest.fixture
def mesh():
    return sw.make_mesh((2, 4), ("x", "y"))


def test_trace_has_programs_equations_and_annotations(tmp_path, mesh):
    x = sw.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("x", "y")))

    def step(x):
        return lax.sin(parallel.psum(x, "x"))

    fun = sw.jit(sw.shard_map(step, mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y")))
    fun(x)
    before = sys.gettrace(), threading.gettrace()
    with profiler.trace(tmp_path):
        with profiler.StepTraceAnnotation("train", step_num=3), named_scope("layer"):
            fun(x)
        profiler.annotate_function(lambda: fun(x), name="again")()
    assert (sys.gettrace(), threading.gettrace()) == before
    events = [e for e in events_below(tmp_path) if e["ph"] == "X"]
    by_name = {e["name"]: e for e in events}
    assert {"all_reduce", "sin", "step", "train", "again"} <= set(by_name)
    assert [e["name"] for e in events if e["cat"] == "equation"] == ["all_reduce", "sin"] * 2
    first = next(e for e in events if e["name"] == "sin")
    assert first["args"] == {"scope": "layer"}
    assert by_name["train"]["args"] == {"step_num": "3", "scope": "layer"} or by_name["train"]["args"] == {
        "step_num": "3"
    }
    program = next(e for e in events if e["cat"] == "program")
    assert program["ts"] <= first["ts"]
    assert first["ts"] + first["dur"] <= program["ts"] + program["dur"] + 1e-3


def test_one_trace_at_a_time(tmp_path):
    with pytest.raises(RuntimeError, match="No profile started"):
        profiler.stop_trace()
    profiler.start_trace(tmp_path)
    with pytest.raises(RuntimeError, match="already been started"):
        profiler.start_trace(tmp_path)
    profiler.stop_trace()
    assert events_below(tmp_path)


def test_trace_ends_when_the_block_raises(tmp_path):
    with pytest.raises(ZeroDivisionError), profiler.trace(tmp_path):
        raise ZeroDivisionError
    assert sys.gettrace() is None or "pytest" not in str(sys.gettrace())
    with profiler.trace(tmp_path / "next"):
        pass


def test_second_file_for_perfetto(tmp_path):
    with profiler.trace(tmp_path, create_perfetto_trace=True):
        sw.jit(lambda x: x + 1)(1.0)
    first, second = (p.read_bytes() for p in sorted(tmp_path.glob("plugins/profile/*/*trace.json.gz")))
    assert gzip.decompress(first) == gzip.decompress(second)


def test_what_is_not_available(tmp_path):
    with pytest.raises(NotImplementedError, match=r"ui\.perfetto\.dev"):
        profiler.start_trace(tmp_path, create_perfetto_link=True)
    with pytest.raises(NotImplementedError, match=r"profiler.trace"):
        profiler.start_server(9999)


def test_memory_profile(tmp_path, mesh):
    x = sw.device_put(np.ones((64, 8), np.float32), NamedSharding(mesh, P("x")))
    profiler.save_device_memory_profile(tmp_path / "memory.json")
    profile = json.loads((tmp_path / "memory.json").read_text())
    assert {"type": "f32[64,8]", "sharding": str(x.sharding), "bytes_per_device": 1024} in profile["arrays"]
    assert all(held >= 1024 for held in profile["bytes_per_device"].values())
