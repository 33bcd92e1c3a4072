"""Planned runs: the devices are the machine's, arrays have no data, and each compiled program gets a plan."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
import shardwise.plan
from shardwise._src import distributed
from shardwise.engine.data_free import DataFree
from shardwise.engine.executable import Executable
from shardwise.experimental import multihost_utils
from shardwise.plan import StepsDone, ValueUnknownError, session
from shardwise.sharding import NamedSharding as NS
from shardwise.sharding import P

TERA = (4096, 8192, 8192)  # f32: 1 TiB


def mesh_of(run, **sizes):
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes))


def test_devices_are_the_machines():
    here = jax.devices()
    with shardwise.plan.on("v5p-256") as run:
        devices: list[Any] = jax.devices()
        assert len(devices) == run.machine.devices == 128
        assert (devices[0].platform, devices[0].device_kind) == ("tpu", run.machine.chip.kind)
        assert jax.default_backend() == "tpu" and jax.devices("tpu") == devices
        assert len({tuple(d.coords) for d in devices}) == 128
        assert jax.process_count() == run.machine.processes == len({d.process_index for d in devices})
        assert jax.process_count() * jax.local_device_count() == 128
        assert jax.devices("cpu") == here
    assert jax.devices() == here and jax.process_count() == 1


def test_derivatives_of_jitted_functions_are_programs():
    @jax.jit
    def loss(w, x):
        return jnp.tanh(x @ w).sum()

    with shardwise.plan.on("v5p-8") as run:
        for _ in range(3):
            jax.value_and_grad(loss)(jnp.ones((64, 64)), jnp.ones((16, 64)))
    assert {p.name: (p.calls, p.flops >= 2 * 64 * 64 * 16) for p in run.plans()} == {
        "loss": (3, True),
        "derivative of loss": (3, True),
    }


def test_arrays_take_no_memory():
    with shardwise.plan.on("v5p-256") as run:
        mesh = mesh_of(run, x=16, y=8)
        tracemalloc.start()
        made = [
            jnp.zeros(TERA),
            jax.random.normal(jax.random.key(0), TERA),
            jax.jit(lambda: jnp.ones(TERA), out_shardings=NS(mesh, P("x", "y")))(),
            jax.device_put(jnp.zeros(2**38, jnp.int8), NS(mesh, P("x"))),
        ]
        made += [made[1] * 2 + made[0], jnp.stack([made[0], made[1]]), made[2].T[3:].astype(jnp.bfloat16), made[1][5]]
        value = np.asarray(made[0])
        made.append(jnp.asarray(value))
        made.append(jax.jit(lambda x: x + 1)(value))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 50e6
    assert value.shape == TERA and value.dtype == np.float32
    assert [x.shape for x in made[4:8]] == [TERA, (2, *TERA), (8189, 8192, 4096), TERA[1:]]
    assert made[2].sharding == NS(mesh, P("x", "y"))


def test_data_of_the_host_stays():
    with shardwise.plan.on("v5p-256") as run:
        mesh = mesh_of(run, x=128)
        x = jax.device_put(np.arange(256.0, dtype=np.float32), NS(mesh, P("x")))
        np.testing.assert_array_equal(x, np.arange(256))
        assert run.notes == ()
        assert np.asarray(jax.jit(lambda x: x + 1)(x)).sum() == 0
        assert len(run.notes) == 1


def test_small_ops_of_known_values_are_computed():
    with shardwise.plan.on("v5p-256") as run:
        key = jax.random.key(3)
        split = jax.device_put(jnp.arange(256), NS(mesh_of(run, x=128), P("x")))
        known = [
            int(jnp.ceil(jnp.asarray(7) / 2)),
            bool(jnp.all(jnp.isfinite(jnp.linspace(0, 1, 5)))),
            float(jax.random.uniform(key)),
            jnp.argsort(jnp.array([3, 1, 2])).tolist(),
            int((split + 1).sum()),
        ]
        assert run.notes == ()
        large, counted = jnp.ones(1 << 20), jax.lax.fori_loop(0, 3, lambda i, x: x + 1, jnp.zeros(()))
        assert float(large[0]) == float(counted) == 0
        assert len(run.notes) == 1
    assert known == [4, True, float(jax.random.uniform(jax.random.key(3))), [1, 2, 0], 256 * 257 // 2]


def test_values_read_as_zeros_with_a_note_per_line():
    with shardwise.plan.on("v5p-256") as run:
        x = jax.jit(lambda: jnp.ones(()))()
        for _ in range(3):
            assert float(x) == 0.0
        assert not x
        assert x.item() == 0
    assert [note.partition(": ")[2] for note in run.notes] == ["reads float32[]: zeros in a planned run"] * 3
    assert all(note.startswith("test_session.py:") for note in run.notes)


def test_reading_may_be_an_error():
    with (
        shardwise.plan.on("v5p-256", read="raise"),
        pytest.raises(ValueUnknownError, match=r"float32\[\] at test_session.py:\d+, .*read='zeros' \(--read zeros\)"),
    ):
        float(jax.jit(lambda: jnp.ones(()))())


def test_a_program_that_is_called_again_adds_to_its_count():
    with shardwise.plan.on("v5p-256") as run:
        mesh = mesh_of(run, x=128)
        w = jax.jit(lambda: jnp.zeros((1024, 1024)), out_shardings=NS(mesh, P("x")))()

        def step(w):
            return w - 0.1 * jnp.tanh(w @ w)

        jitted = jax.jit(step, donate_argnums=0)
        for _ in range(5):
            w = jitted(old := w)
            assert old.is_deleted()
    plans = run.plans()
    assert [(p.name, p.calls) for p in plans] == [("step", 5), ("<lambda>", 1)]
    plan = plans[0]
    assert (plan.machine, plan.devices, plan.mesh) == ("v5p-256", 128, {"x": 128})
    assert plan.arguments == plan.results == plan.aliased == 1024 * 1024 * 4 // 128
    assert plan.fits and plan.seconds.likely > 0
    assert plan.flops == 2 * 1024**3 / 128
    assert [(t.kind, t.axes, t.nbytes) for t in plan.traffic] == [("all_gather", ("x",), 127 * 1024 * 1024 * 4 // 128)]


def test_transformed_functions_and_maps_over_devices_are_programs_of_the_user():
    x = np.ones((64, 64), np.float32)
    with shardwise.plan.on("v5e-8") as run:
        mesh = mesh_of(run, x=8)
        loss = lambda v: (v @ v).sum()  # noqa: E731
        calls = {
            "grad": jax.jit(jax.grad(loss)),
            "vmap": jax.jit(jax.vmap(lambda v: v @ jnp.ones((64, 8)))),
            "shard_map": jax.jit(jax.shard_map(lambda v: v @ v.T, mesh=mesh, in_specs=P("x"), out_specs=P("x"))),
            "function of numpy": jax.jit(jnp.matmul, donate_argnums=()),
            "pmap": jax.pmap(lambda v: jax.lax.pmean(v @ v.T, "batch"), "batch"),
        }
        counts = []
        for name, f in calls.items():
            f(*(x, x) if name == "function of numpy" else (x.reshape(8, 8, 64),) if name == "pmap" else (x,))
            counts.append(sum(p.calls for p in run.plans()))
        assert counts == [1, 2, 3, 4, 5]
        jax.random.normal(jax.random.key(0), (64, 64))  # compiled by us
        assert sum(p.calls for p in run.plans()) == 5
        assert {p.devices for p in run.plans()} == {1, 8}


def test_first_steps_that_lie_otherwise_are_one_program():
    with shardwise.plan.on("v5p-256") as run:
        mesh = mesh_of(run, x=128)
        pinned = NS(mesh, P("x"))
        step = jax.jit(lambda w: w @ w, out_shardings=pinned)
        w = jnp.zeros((1024, 1024))
        for _ in range(3):
            w = step(w)
    (plan,) = run.plans()
    assert plan.calls == 3 and plan.arguments == 1024 * 1024 * 4 // 128


def test_a_run_ends_after_the_steps_asked_for():
    done = []
    with shardwise.plan.on("v5p-256", steps=2) as run, pytest.raises(StepsDone):
        small, large = jax.jit(lambda x: x + 1), jax.jit(lambda x: x @ x)
        x = jnp.zeros((256, 256))
        for i in range(10):
            try:
                x = large(small(small(x)))
            except Exception:
                pytest.fail("programs that catch errors do not catch the end")
            done.append(i)
    assert done == [0, 1]
    assert max(p.calls for p in run.plans()) == 6  # of the small one


def test_compiled_calls_end_with_the_run():
    with shardwise.plan.on("v5p-256"):
        compiled = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((3,), "float32")).compile()
        jitted = jax.jit(lambda x: x * 2)
        jitted(1.0)
    assert float(jitted(4.0)) == 8.0
    with pytest.raises(RuntimeError, match=r"compiled in a planned run, which is over"):
        compiled(np.zeros(3, np.float32))


@pytest.mark.parametrize("read, steps, text", [("nan", None, r"read='nan': give 'zeros'"), ("zeros", 0, r"steps=0: ")])
def test_arguments_out_of_range(read, steps, text):
    with pytest.raises(ValueError, match=text), shardwise.plan.on("v5p-256", read=read, steps=steps):
        pass


def test_unknown_machines_name_the_nearest():
    here = jax.devices()
    with pytest.raises(ValueError, match="v5p"), shardwise.plan.on("v5pp-256"):
        pass
    assert jax.devices() == here


def test_a_mesh_that_is_too_large():
    with shardwise.plan.on("v5p-256"), pytest.raises(ValueError, match="Number of devices 128 must be >= the product"):
        jax.make_mesh((256,), ("x",))


def test_a_batch_that_does_not_divide():
    with shardwise.plan.on("v5p-256") as run:
        mesh = mesh_of(run, data=128)
        with pytest.raises(ValueError, match=r"dimension 0 .*divisible by 128.*equal to 100"):
            jax.device_put(np.zeros((100, 8)), NS(mesh, P("data")))


def test_one_process_stands_for_all():
    with shardwise.plan.on("v5p-256"):
        jax.distributed.initialize()
        mesh = jax.make_mesh((32, 4), ("data", "model"))
        here = NS(mesh, P("data"))
        batch = jax.make_array_from_process_local_data(here, np.ones((16, 8), np.float32))
        assert batch.shape == (16 * jax.process_count(), 8)
        calls = []

        def part(index):
            calls.append(index)
            return np.zeros((2, 8), np.float32)

        assert jax.make_array_from_callback((64, 8), here, part).shape == (64, 8)
        assert len(calls) == 1
        parts = [jax.device_put(np.zeros((2, 8)), d) for d in mesh.local_devices]
        x = jax.make_array_from_single_device_arrays((64, 8), here, parts)
        assert (x.shape, x.sharding) == ((64, 8), here)
        first, *others = [s.data for s in x.addressable_shards]
        assert len(others) + 1 == jax.local_device_count() and first is not None and first.shape == (2, 8)
        assert jax.jit(lambda x: x.sum())(batch).shape == ()
    jax.distributed.shutdown()


def test_the_program_with_the_most_work_in_the_run_is_first():
    with shardwise.plan.on("v5p-8") as run:
        train, test = jax.jit(lambda x: x @ x), jax.jit(lambda x: x @ x + 1)
        for _ in range(20):
            train(jnp.ones((64, 64)))
        test(jnp.ones((128, 128)))
    assert [plan.calls for plan in run.plans()] == [20, 1]


def test_callbacks_are_not_called():
    called = []
    with shardwise.plan.on("v5p-256") as run:
        f = jax.jit(lambda x: jax.pure_callback(lambda v: called.append(v) or v, x, x))
        assert f(jnp.ones(3)).shape == (3,)
        jax.debug.print("{}", jnp.ones(3))

        @jax.jit
        def printing(x):
            y = jnp.tanh(x)
            jax.debug.print("{}", (y * 2).mean())
            jax.debug.print("done")
            return y.sum(0)

        printing(jnp.ones((512, 512)))
    assert not called
    assert any("a callback is not called" in note for note in run.notes)
    assert [plan.calls for plan in run.plans()] == [1, 1]


def _chosen_by_values():
    """Steps whose data depends on values that a compiled program gave."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    w = jax.device_put(jax.random.normal(jax.random.key(0), (16, 4)), NS(mesh, P()))
    policy = jax.jit(lambda w, x: jax.nn.softmax(x @ w))

    @jax.jit
    def step(w, x, a):
        return w - 0.1 * x.T @ jax.nn.one_hot(a, 4)

    for i in range(2):
        x = jax.device_put(np.sin(np.arange(i, 256 + i, dtype=np.float32)).reshape(16, 16), NS(mesh, P("x")))
        w = step(w, x, np.asarray(policy(w, x)).argmax(1))
    return np.asarray(w)


def test_a_run_may_compute_what_it_plans():
    with shardwise.plan.on("v5e-8", read="compute") as run:
        computed = _chosen_by_values()
    np.testing.assert_allclose(computed, _chosen_by_values(), rtol=1e-6)
    assert {p.name: (p.calls, p.devices) for p in run.plans()} == {"step": (2, 8), "<lambda>": (2, 8)}
    assert run.notes == ()
    with shardwise.plan.on("v5e-8", read="compute"), pytest.raises(MemoryError, match="is for programs that fit here"):
        jax.jit(lambda: jnp.ones(TERA))()


def test_programs_compiled_ahead_of_time_are_planned_where_none_is_called():
    with shardwise.plan.on("v5e-8") as run:
        jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((64, 64), jnp.float32)).compile()
    assert [(p.calls, p.flops) for p in run.plans()] == [(0, 2 * 64**3)]


def test_many_devices_cost_as_few():
    with shardwise.plan.on("h100-8x8192") as run:
        mesh = mesh_of(run, data=4096, model=16)
        w = jnp.zeros((2**20, 2**14), device=NS(mesh, P("data", "model")))
        jax.jit(lambda w: w @ w.T)(w)
    (plan,) = run.plans()
    assert plan.devices == 65536 and plan.planning_seconds < 1


def test_copies_that_no_memory_holds_are_refused():
    with shardwise.plan.on("v5p-256"):
        x = jnp.zeros((1 << 20, 1 << 20))
        with pytest.raises(MemoryError, match=r"a copy of float32\[1048576,1048576\] takes 4,096.0 GiB"):
            np.array(x)
        with pytest.raises(MemoryError, match="a list of"):
            x.tolist()
        with pytest.raises(MemoryError, match="a pickled copy of"):
            pickle.dumps(x)
        with pytest.raises(MemoryError, match="a converted copy of"):
            np.asarray(x, np.float64)
        assert repr(x).startswith("Array([[0., 0., 0., ..., 0., 0., 0.],")


def test_devices_say_how_much_they_hold():
    with shardwise.plan.on("v5p-256") as run:
        stats = jax.devices()[3].memory_stats()
        assert stats is not None and stats["bytes_limit"] == run.machine.chip.usable_bytes


def test_loops_whose_trips_depend_on_values_are_noted():
    with shardwise.plan.on("v5p-8") as run:
        jax.jit(lambda x: jax.lax.while_loop(lambda x: (x @ x).sum() > 0, lambda x: x @ x, x))(jnp.ones((64, 64)))
    (plan,) = run.plans()
    assert any("how often the loop runs depends on values" in note for note in plan.notes)
    assert any("runs on 1 of the 4 devices" in note for note in plan.notes)


def test_memories_are_the_machines():
    with shardwise.plan.on("v5p-8") as run:
        mesh = mesh_of(run, x=4)
        x = jax.device_put(np.zeros(8), NS(mesh, P("x"), memory_kind="pinned_host"))
        assert x.sharding.memory_kind == "pinned_host"
        assert [m.kind for m in jax.devices()[0].addressable_memories()] == ["device", "pinned_host", "unpinned_host"]


def test_compiled_programs_can_be_looked_at():
    with shardwise.plan.on("v5p-8") as run:
        mesh = mesh_of(run, x=4)
        given = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=NS(mesh, P("x")))
        lowered = jax.jit(lambda a: jnp.tanh(a @ a), donate_argnums=0).trace(given).lower(lowering_platforms=("tpu",))
        compiled = lowered.compile()
        memory = compiled.memory_analysis()
        assert memory.argument_size_in_bytes == memory.alias_size_in_bytes == 2**20
        assert memory.peak_memory_in_bytes == 2**20  # the gathered operand, 4 MiB, stays on the chip
        assert compiled.cost_analysis()["collective bytes"] == 3 * 2**20
        assert (
            "all_gather" in compiled.explain()
            and "all_gather" in compiled.as_text()
            and "dot_general" in lowered.as_text()
        )
        assert compiled(jnp.zeros((1024, 1024), device=given.sharding)).shape == (1024, 1024)


def test_planned_programs_have_all_that_executables_have():
    public = {name for name in dir(Executable) if not name.startswith("_")}
    # Of arguments with data; never set; kernels and their order, and what these are given of the devices.
    without = {"blocks", "env", "kept", "plan", "plan_of_devices"}
    assert public - set(dir(DataFree)) == without


def test_utilities_of_several_hosts_find_all_of_them():
    with shardwise.plan.on("v5p-32"):
        hosts = jax.process_count()
        assert hosts == 4
        jax.distributed.initialize()
        client = distributed.global_state.client
        client.key_value_set("a/b", "1")
        client.wait_at_barrier("here", 1000)
        assert client.blocking_key_value_get("a/b", 1000) == "1" and client.key_value_dir_get("a") == [("a/b", "1")]
        assert client.key_value_try_get("a/b") == "1" and client.key_value_increment("n", 2) == 2
        client.key_value_delete("a")
        assert client.key_value_dir_get("a") == [] and client.get_live_nodes([0, 3]).keys() == {0, 3}
        with pytest.raises(jax.errors.JaxRuntimeError, match="NOT_FOUND: the key 'a/b'"):
            client.key_value_try_get("a/b")
        assert multihost_utils.process_allgather(np.ones((2, 3))).shape == (hosts, 2, 3)
        assert multihost_utils.process_allgather(np.ones((2, 3)), tiled=True).shape == (hosts * 2, 3)
        multihost_utils.sync_global_devices("x")
        mesh = jax.make_mesh((16,), ("x",))
        whole = multihost_utils.host_local_array_to_global_array(np.ones((8, 3)), mesh, P("x"))
        assert whole.shape == (8 * hosts, 3)
        assert multihost_utils.global_array_to_host_local_array(whole, mesh, P("x")).shape == (8, 3)
        jax.distributed.shutdown()
    assert distributed.global_state.client is None


def test_a_run_of_small_steps_alone_ends(monkeypatch):
    monkeypatch.setattr(session, "HELPER_CALLS", 50)
    with shardwise.plan.on("v5p-8", steps=3) as run, pytest.raises(StepsDone):
        step = jax.jit(lambda x: x * 2)
        while True:
            step(jnp.ones(4))
    assert [plan.calls for plan in run.plans()] == [50]


def test_helpers_between_steps_and_first_steps_of_weak_types_end_no_run():
    done = []
    with shardwise.plan.on("v5p-8", steps=3) as run, pytest.raises(StepsDone):
        helper, step = jax.jit(lambda x: x * x), jax.jit(lambda x, scale: (x @ x * scale, scale + np.float32(1)))
        x, scale = jnp.zeros((256, 256)), 1.0
        for i in range(10):
            for _ in range(5):
                helper(1.0)
            x, scale = step(x, scale)
            done.append(i)
    assert done == [0, 1, 2]
    assert [p.calls for p in run.plans()] == [3, 20]


@pytest.mark.parametrize("calls, steps, lines", [(21, None, 1), (19, None, 0), (21, 100, 0)])
def test_a_run_that_calls_its_largest_program_very_often_names_steps(monkeypatch, capsys, calls, steps, lines):
    monkeypatch.setattr(session, "MANY_CALLS", 20)
    with shardwise.plan.on("v5p-8", steps=steps):
        step, x = jax.jit(lambda x: x @ x), jnp.ones((256, 256))
        for _ in range(calls):
            step(x)
    assert capsys.readouterr().err.count("was called 20 times, and the run goes on") == lines


def test_a_long_run_names_steps_and_what_was_read(monkeypatch, capsys):
    monkeypatch.setattr(session, "LONG", 0.0)
    with shardwise.plan.on("v5p-8"):
        step, count = jax.jit(lambda x, n: (x @ x, n + 1)), 0
        x = jnp.ones((256, 256))
        for _ in range(3):
            x, count = step(x, count)
            assert int(count) == 0
    told = capsys.readouterr().err
    assert told.count("and the run goes on. Values read as zeros (the last at test_session.py:") == 1
