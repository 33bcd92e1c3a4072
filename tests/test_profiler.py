"""The profiler: which events a trace holds, annotations, and the memory profile."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, profiler
from shardwise.ops.devices import parallel
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.transforms.reports import Timeline
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
    enabled = profiler.TraceAnnotation.is_enabled
    assert not enabled()
    with profiler.trace(tmp_path):
        assert enabled()
        with profiler.StepTraceAnnotation("train", step_num=3) as annotation, named_scope("layer"):
            fun(x)
            annotation.set_metadata(loss=0.5)
        profiler.annotate_function(lambda: fun(x), name="again")()
    assert (sys.gettrace(), threading.gettrace()) == before
    events = [e for e in events_below(tmp_path) if e["ph"] == "X"]
    by_name = {e["name"]: e for e in events}
    assert {"all_reduce", "sin", "step", "train", "again"} <= set(by_name)
    assert [e["name"] for e in events if e["cat"] == "equation"] == ["all_reduce", "sin"] * 2
    assert by_name["train"]["args"] == {"step_num": "3", "loss": "0.5"}
    first = next(e for e in events if e["name"] == "sin")
    where = step.__code__.co_firstlineno + 1
    assert first["args"] == {
        "scope": "layer",
        "operands": "f32[4,2]",
        "results": "f32[4,2]",
        "bytes": 64,
        "line": f"{__file__}:{where}",
    }
    program = next(e for e in events if e["cat"] == "program")
    assert program["ts"] <= first["ts"]
    assert first["ts"] + first["dur"] <= program["ts"] + program["dur"] + 1e-3


@pytest.fixture
def profiled(tmp_path, mesh):
    """A profile of two steps, and the function that they call."""
    x = sw.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("x")))
    fun = sw.jit(lambda x: lax.sin(x @ jnp.ones((8, 4))))
    fun(x)
    with profiler.trace(tmp_path):
        for i in range(2):
            with profiler.StepTraceAnnotation("train", step_num=i, rate=0.5, note="a"):
                fun(x)
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    return file


def read_all(data):
    """Whatever a reader of profiles says."""
    return [
        (
            plane.name,
            dict(plane.stats),
            [
                (line.name, [(e.name, e.start_ns, e.duration_ns, e.end_ns, dict(e.stats)) for e in line.events])
                for line in plane.lines
            ],
        )
        for plane in data.planes
    ]


def test_profiles_have_planes_lines_and_events(profiled):
    planes = {name: (stats, lines) for name, stats, lines in read_all(profiler.ProfileData.from_file(profiled))}
    assert list(planes) == ["/host:metadata", "/host:CPU", "Task Environment"]
    about, _ = planes["/host:metadata"]
    assert (about["shardwise_version"], about["process_count"]) == (sw.__version__, 1)
    times, _ = planes["Task Environment"]
    assert 0 < times["profile_stop_time"] - times["profile_start_time"] < 60e9
    _, ((name, events),) = planes["/host:CPU"]
    assert name == threading.current_thread().name
    steps = [e for e in events if e[0] == "train"]
    assert [e[4] for e in steps] == [{"step_num": i, "rate": 0.5, "note": "a", "_r": 1} for i in (0, 1)]
    products = [e for e in events if e[0] == "dot_general"]
    for step, product in zip(steps, products, strict=True):
        assert step[1] <= product[1] and product[3] <= step[3]
        said = product[4]
        assert (said["hlo_op"], said["hlo_module"]) == ("dot_general", "<lambda>")
        assert (said["operands"], said["results"]) == ("f32[4,8] f32[8,4]", "f32[4,4]")
        assert said["bytes_accessed"] == 4 * (32 + 32 + 16) and said["source"].startswith(__file__)
    (document,) = profiled.parent.glob("*.trace.json.gz")
    with gzip.open(document, "rt") as file:  # the same events
        shown = [e["name"] for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
    assert sorted(shown) == sorted(e[0] for e in events)


def test_jax_reads_profiles_as_we_do(profiled):
    jax = pytest.importorskip("jax")
    assert read_all(jax.profiler.ProfileData.from_file(str(profiled))) == read_all(
        profiler.ProfileData.from_file(profiled)
    )


def test_profiles_of_jax_are_read(tmp_path):
    jax = pytest.importorskip("jax")
    with jax.profiler.trace(tmp_path):
        jax.jit(lambda x: jax.numpy.sin(x))(1.0).block_until_ready()
    (file,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    theirs, ours = jax.profiler.ProfileData.from_file(str(file)), profiler.ProfileData.from_file(file)
    assert read_all(theirs)[:2] == read_all(ours)[:2]
    host = ours.find_plane_with_name("/host:CPU")
    assert host is not None and host.name == "/host:CPU" and ours.find_plane_with_name("none") is None


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"no profile", b"\x0a"])
def test_what_is_no_profile(data):
    with pytest.raises(ValueError, match="no message of protocol buffers"):
        profiler.ProfileData.from_serialized_xspace(data)


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
    with pytest.raises(NotImplementedError, match=r"profiler.trace"):
        profiler.register_subprocess(1, 9999)
    with pytest.raises(NotImplementedError, match=r"from_file"):
        profiler.ProfileData.from_text_proto("")


def profile_messages():
    """pprof's Profile as a message class of protobuf, which reads files on its own."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="pprof", syntax="proto3")
    numeric, text = descriptor_pb2.FieldDescriptorProto.TYPE_INT64, descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    one, many = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    messages = {
        "ValueType": [("type", 1, one, numeric), ("unit", 2, one, numeric)],
        "Label": [("key", 1, one, numeric), ("str", 2, one, numeric)],
        "Sample": [("location_id", 1, many, numeric), ("value", 2, many, numeric), ("label", 3, many, "Label")],
        "Line": [("function_id", 1, one, numeric)],
        "Location": [("id", 1, one, numeric), ("line", 4, many, "Line")],
        "Function": [("id", 1, one, numeric), ("name", 2, one, numeric)],
        "Profile": [("sample_type", 1, many, "ValueType"), ("sample", 2, many, "Sample"), ("location", 4, many, "Location"),
                    ("function", 5, many, "Function"), ("string_table", 6, many, text), ("default_sample_type", 14, one, numeric)],
    }  # fmt: skip
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, tag, label, kind in fields:
            if isinstance(kind, str):
                message.field.add(name=field, number=tag, label=label, type_name=f".pprof.{kind}", type=11)
            else:
                message.field.add(name=field, number=tag, label=label, type=kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pprof.Profile"))


def read_profile(data):
    """What a profile says: sample types, and per function and device count and bytes."""
    profile: Any = profile_messages().FromString(gzip.decompress(data))
    texts = profile.string_table
    functions = {f.id: texts[f.name] for f in profile.function}
    names = {x.id: functions[x.line[0].function_id] for x in profile.location if x.line}
    types = [(texts[t.type], texts[t.unit]) for t in profile.sample_type]
    samples = {}
    for s in profile.sample:
        labels = {texts[x.key]: texts[x.str] for x in s.label}
        where = names[s.location_id[0]] if s.location_id else ""
        samples[where, labels.get("kind"), labels.get("device")] = list(s.value)
    return types, samples, texts[profile.default_sample_type]


def test_memory_profile(tmp_path, mesh):
    x = sw.device_put(np.ones((64, 8), np.float32), NamedSharding(mesh, P("x")))
    profiler.save_device_memory_profile(tmp_path / "memory.prof")
    types, samples, default = read_profile((tmp_path / "memory.prof").read_bytes())
    assert types == [("allocations", "count"), ("space", "bytes")]
    assert default == "space"
    for device in sw.devices():
        assert samples[f"f32[64,8] {x.sharding}", "buffer", str(device)] == [1, 1024]


def test_memory_profile_has_the_sample_types_of_jax():
    jax = pytest.importorskip("jax")
    kept = jax.numpy.ones(100)
    types, samples, _ = read_profile(jax.profiler.device_memory_profile())
    assert types == read_profile(profiler.device_memory_profile())[0]
    assert {kind for _, kind, _ in samples} >= {"buffer"}
    assert kept.size == 100


def test_a_group_names_its_ops_and_all_their_lines(tmp_path):
    def step(x):
        y = jnp.tanh(x)
        return y * y + x

    x = jnp.ones((512, 512))
    fun = sw.jit(step)
    with profiler.trace(tmp_path):
        fun(x)
    (group,) = (e["args"] for e in events_below(tmp_path) if e["name"] == "fused")
    first = step.__code__.co_firstlineno
    assert set(group["ops"].split()) == {"tanh", "mul", "add"}
    assert group["line"].split("; ") == [f"{__file__}:{first + 1}", f"{__file__}:{first + 2}"]
    assert (group["operands"], group["results"], group["bytes"]) == ("f32[512,512]",) * 2 + (2 * 4 * 512 * 512,)
    assert len([e for e in events_below(tmp_path) if e.get("cat") == "program"]) == 1


def test_timelines_of_several_processes_make_one_document(tmp_path):
    file = tmp_path / "t.json"
    fun = sw.jit(lambda x: lax.sin(x))
    ends = []
    for _ in range(3):
        timeline = Timeline()
        timeline.start()
        fun(1.0)
        timeline.stop()
        timeline.append_to(file)
        document = json.loads(file.read_text())
        ends.append([e["ts"] for e in document["traceEvents"] if e["name"] == "sin"])
    assert [len(times) for times in ends] == [1, 2, 3]
    assert ends[2][:2] == ends[1] and sorted(ends[2]) == ends[2]  # one clock


def test_a_timeline_needs_the_other_to_have_ended(tmp_path):
    timeline = Timeline()
    timeline.start()
    try:
        with pytest.raises(RuntimeError, match="already been started"):
            profiler.start_trace(tmp_path)
        with pytest.raises(RuntimeError, match="No profile started"):
            profiler.stop_trace()
    finally:
        timeline.stop()
