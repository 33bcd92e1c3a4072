"""Advice that is planned: policies and batches have the effect that their program's plan has."""

from __future__ import annotations

import importlib
import re

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import advise, plan
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS

advising = importlib.import_module("shardwise.plan.advise")  # the package has a function of that name
MESH = AbstractMesh((8,), ("data",))
WIDTH = 4096


def made(batch, layers=16, policy=jax.checkpoint_policies.nothing_saveable, prevent_cse=True):
    def loss(params, x):
        layer = lambda x, w: (x + jnp.tanh(x @ w["up"]) @ w["down"], None)  # noqa: E731
        layer = layer if policy is None else jax.checkpoint(layer, policy=policy, prevent_cse=prevent_cse)
        return jnp.sum(jax.lax.scan(layer, x, params)[0])

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    at = lambda shape, *spec: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NS(MESH, P(*spec)))  # noqa: E731
    params = {"up": at((layers, WIDTH, WIDTH), None, "data"), "down": at((layers, WIDTH, WIDTH), None, "data")}
    return jax.jit(step, donate_argnums=0), (params, at((batch, WIDTH), "data"))


def found_in(text, pattern):
    return float(re.search(pattern, text)[1].replace(",", ""))


def test_a_policy_saves_time():
    f, args = made(65536)
    advice = next(a for a in advise(f, args, on="v5e-8") if "jax.checkpoint" in a.change)
    name = advice.change.rpartition(".")[2]
    own = plan(f, *args, on="v5e-8")
    written = plan(*flat(made(65536, policy=getattr(jax.checkpoint_policies, name))), on="v5e-8")
    assert written.fits and advice.seconds == own.seconds.likely - written.seconds.likely > 0
    assert advice.nbytes == own.peak - written.peak
    assert not any("jax.checkpoint" in a.change for a in own.advice)  # it fits: nobody asked


def flat(made):
    return made[0], *made[1]


def test_functions_of_scans_are_to_be_checkpointed():
    own = plan(*flat(made(2**19, policy=None)), on="v5e-8")
    assert not own.fits
    advice = next(a for a in own.advice if "jax.checkpoint" in a.change)
    assert [a.fits for a in own.advice] == sorted(
        [a.fits for a in own.advice], reverse=True
    )  # what makes it fit comes first
    assert advice.fits and advice.change.startswith(
        "Wrap the function of the scan, jax.checkpoint(f, prevent_cse=False, policy="
    )
    assert advice.source is not None and advice.source[0] == __file__ and "it fits: the peak falls" in advice.effect
    name = advice.change.rpartition(".")[2].rstrip(")")
    policy = getattr(jax.checkpoint_policies, name)
    written = plan(*flat(made(2**19, policy=policy, prevent_cse=False)), on="v5e-8")
    assert written.fits and advice.nbytes == own.peak - written.peak
    assert advice.seconds == own.seconds.likely - written.seconds.likely
    fits = plan(*flat(made(2**10, policy=None)), on="v5e-8")
    assert fits.fits and not any("jax.checkpoint" in a.change for a in fits.advice)  # nobody asked


def test_a_policy_makes_it_fit():
    everything = jax.checkpoint_policies.everything_saveable
    own = plan(*flat(made(2**19, policy=everything)), on="v5e-8")
    assert not own.fits
    advice = next(a for a in own.advice if "jax.checkpoint" in a.change)
    assert "it fits: the peak falls from" in advice.effect
    written = plan(*flat(made(2**19, policy=getattr(jax.checkpoint_policies, advice.change.rpartition(".")[2]))), on="v5e-8")  # fmt: skip
    assert written.fits and f"to {written.peak / 2**30:.2f} GiB" in advice.effect


def test_policies_that_save_more_than_one_that_does_not_fit_are_not_planned(monkeypatch):
    planned = []
    point_of = advising.point_of
    monkeypatch.setattr(advising, "point_of", lambda step, layout: planned.append(layout) or point_of(step, layout))
    own = plan(*flat(made(8, layers=1024)), on="v5e-8")
    assert not own.fits
    assert [layout.remat for layout in planned] == [
        "nothing_saveable"
    ]  # nor half a batch, of less than a row per device


def test_a_batch_that_fits():
    own = plan(*flat(made(2**20)), on="v5e-8")
    assert not own.fits
    advice = next(a for a in own.advice if a.change.startswith("Take a batch"))
    batch = int(found_in(advice.change, r"batch of ([\d,]+) in"))
    assert batch % 8 == 0 and plan(*flat(made(batch)), on="v5e-8").fits
    assert not plan(*flat(made(batch + batch // 8 // 8 * 8)), on="v5e-8").fits  # not much more would


def test_a_larger_batch_costs_less_per_example():
    f, args = made(2048)
    advice = next(a for a in advise(f, args, on="v5e-8") if a.change.startswith("Take a batch"))
    batch = int(found_in(advice.change, r"batch of ([\d,]+) in"))
    own, written = plan(f, *args, on="v5e-8"), plan(*flat(made(batch)), on="v5e-8")
    assert written.fits and batch > 2048
    assert advice.seconds == pytest.approx(own.seconds.likely - written.seconds.likely * 2048 / batch)
    assert "an example" in advice.effect and "% less" in advice.effect


def test_one_device_needs_no_layout():
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    assert advise(lambda x: x + 1, (x,), on="v5e-8") == ()


def test_a_batch_of_a_step_that_takes_no_time():
    at = lambda shape, *spec: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NS(MESH, P(*spec)))  # noqa: E731
    state = {"a": at((64, 64)), "b": at((64, 64))}
    f = lambda state, x: (state, x.reshape(-1, 64, 64))  # noqa: E731
    own = plan(f, state, at((2**25, 4096), "data"), on="v5e-8")
    assert own.seconds.likely == 0 and not own.fits
    (advice,) = own.advice
    assert advice.change.startswith("Take a batch") and advice.effect.endswith("a step takes 0 us instead of 0 us")


def test_advice_on_large_programs_is_planned_if_asked_for(monkeypatch):
    f, args = made(2**19, policy=jax.checkpoint_policies.everything_saveable)
    monkeypatch.setattr(advising, "LARGE", 0)
    quick = plan(f, *args, on="v5e-8")
    assert not quick.fits and advising.ASK in quick.notes
    assert not any("jax.checkpoint" in a.change for a in quick.advice)
    assert any("jax.checkpoint" in a.change for a in advise(f, args, on="v5e-8"))
