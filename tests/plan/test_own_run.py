"""Runs on this machine that are watched."""

from __future__ import annotations

import gc

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import watched_run
from shardwise.runtime.memory import pool
from shardwise.sharding import NamedSharding, PartitionSpec

N = 512


def test_calls_are_counted_and_results_are_those_of_any_run():
    with watched_run() as run:
        f = jax.jit(lambda x: jnp.tanh(x) @ x)
        x = jnp.eye(N)
        first, second = f(x), f(f(x))
    (plan,) = run.plans()
    assert (plan.name, plan.calls, plan.machine, plan.devices, plan.together) == ("<lambda>", 3, "here", 1, True)
    assert plan.measured == () and plan.measured_seconds == 0
    assert float(first[0, 0]) == pytest.approx(0.76159418) and second.shape == (N, N)


def test_each_kernel_is_measured_beside_its_prediction():
    with watched_run(measure=True) as run:
        f = jax.jit(lambda x: jnp.sort(x @ jax.nn.softmax(x)).reshape(-1)[:10])
        for _ in range(3):
            f(jnp.ones((N, N)))
    (plan,) = run.plans()
    names = {t.place: t.name for t in plan.schedule.tasks}
    took = {names[place]: seconds for place, seconds in plan.measured}
    assert set(took) == set(names.values()) and "dot_general" in took
    assert 0 < sum(took.values()) <= plan.measured_seconds


def test_devices_share_the_machine():
    mesh = jax.make_mesh((len(jax.devices()),), ("i",))
    x = jax.device_put(jnp.ones((mesh.size * 64, N)), NamedSharding(mesh, PartitionSpec("i")))
    w = jax.device_put(jnp.ones((N, N)), NamedSharding(mesh, PartitionSpec()))
    with watched_run() as run:
        gc.collect()  # arrays of tests before, which would otherwise go while this one counts
        before = pool.stats()["bytes_in_use"]
        out = jax.jit(lambda x, w: (x @ w, jnp.sin(w), (x * 2).sum(0)))(x, w)
        taken = pool.stats()["bytes_in_use"] - before
    (plan,) = run.plans()
    products = [t for t in plan.schedule.tasks if t.kind == "product"]
    assert sum(t.flops for t in products) == 2.0 * x.shape[0] * N * N  # of all devices
    assert plan.arguments == x.nbytes + w.nbytes  # the replicated one is there once
    assert plan.results == sum(v.nbytes for v in out) == pytest.approx(taken, abs=1 << 16)
    assert plan.traffic and all(t.seconds == 0 for t in plan.traffic)


def test_the_programs_of_several_runs_do_not_mix():
    with watched_run() as outer:
        jax.jit(lambda x: x * 3)(1.0)
        with watched_run() as inner:
            jax.jit(lambda x: x * 4)(1.0)
    assert len(outer.plans()) == len(inner.plans()) == 1
