"""What lies in the host's memory for a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import checkpoint, checkpoint_policies, grad, lax
from shardwise.ad_checkpoint import checkpoint_name
from shardwise.ir import bind
from shardwise.ops.devices.barrier import offload_p
from shardwise.planner.buffers import HostMemory
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.target import TPU
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.planner.device_programs import array, device_program

X = array(256, 256)
N = 256 * 256 * 4
OFFLOADED = checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[],
    names_which_can_be_offloaded=["hidden"],
    offload_src="device",
    offload_dst="pinned_host",
)


def to_host(x):
    return bind(offload_p, x, memory_kind="pinned_host")


def memory(f, *types, donated=(), inputs=(), outputs=()):
    program = device_program(f, *types or (X,), donated=donated)
    program = replace(program, host_inputs=frozenset(inputs), host_outputs=frozenset(outputs))
    return memory_of(program, groups(program, TPU), TPU)


def layer(x, w):
    return lax.tanh(checkpoint_name(lax.dot(x, w), "hidden")), None


def test_offloaded_values_wait_until_they_are_read():
    def f(x):
        y, z = to_host(lax.dot(x, x)), to_host(lax.tanh(x))
        a = lax.dot(lax.exp(x), y)
        return [lax.dot(a, z)]

    assert memory(f).host == HostMemory(temporaries=2 * N)
    assert memory(lambda x: [lax.dot(x, x)]).host == HostMemory()


def test_of_values_that_wait_one_after_the_other_one():
    def f(x):
        for _ in range(3):
            x = lax.dot(to_host(lax.tanh(x)), lax.dot(x, x))
        return [x]

    assert memory(f).host.temporaries == N


def test_a_scanned_layers_offloaded_values_are_a_stack():
    def loss(x, stack):
        return lax.reduce_sum(lax.scan(checkpoint(layer, policy=OFFLOADED), x, stack)[0], axes=(0, 1))

    assert memory(lambda x, stack: [grad(loss)(x, stack)], X, array(8, 256, 256)).host.temporaries == 8 * N


def test_unrolled_layers_keep_as_much():
    def loss(x, *weights):
        for w in weights:
            x, _ = checkpoint(layer, policy=OFFLOADED)(x, w)
        return lax.reduce_sum(x, axes=(0, 1))

    assert memory(lambda *xs: [grad(loss)(*xs)], *[X] * 5).host.temporaries == 4 * N


def test_within_a_loop_or_a_branch():
    def step(x):
        return lax.dot(to_host(lax.tanh(x)), lax.dot(x, x))

    assert memory(lambda x: [lax.fori_loop(0, 9, lambda i, x: step(x), x)]).host.temporaries == N
    assert memory(lambda p, x: [lax.cond(p, step, lambda x: x, x)], array(dtype="bool"), X).host.temporaries == N


def test_arguments_and_results_with_the_host_take_none_of_the_devices():
    def f(x, m):
        return [lax.add(x, m), to_host(lax.mul(x, m))]

    found = memory(f, X, X, donated=(0, 1), inputs=(1,), outputs=(1,))
    assert found.host == HostMemory(arguments=N, results=N, aliased=N)
    assert (found.arguments, found.aliased) == (N, N)
    assert [b.name for b in found.buffers if b.kind == "argument"] == ["args[0]"]


def test_a_donated_argument_gives_its_memory_to_results_in_the_same_memory_only():
    found = memory(lambda m: [lax.tanh(m)], donated=(0,), inputs=(0,))
    assert (found.aliased, found.host) == (0, HostMemory(arguments=N))
    assert found.arguments == 0
    assert found.temporaries == N  # the operand, while it is fetched


def test_memory_analysis_says_it():
    with jax.plan.on("v5e-16"):
        mesh = jax.make_mesh((16,), ("x",))

        def place(kind=None):
            return NamedSharding(mesh, PartitionSpec("x"), memory_kind=kind)

        def step(w, m):
            m = jax.device_put(m, place("device")) * 0.9 + w
            return w - m, jax.device_put(m, place("pinned_host"))

        f = jax.jit(step, donate_argnums=(0, 1), out_shardings=(place(), place("pinned_host")))
        types = [jax.ShapeDtypeStruct((1024, 1024), np.float32, sharding=place(k)) for k in (None, "pinned_host")]
        found = f.lower(*types).compile().memory_analysis()
    share = 4 * 1024**2 // 16
    assert (found.host_argument_size_in_bytes, found.host_output_size_in_bytes) == (share, share)
    assert (found.host_alias_size_in_bytes, found.host_temp_size_in_bytes) == (share, 0)
    assert (found.argument_size_in_bytes, found.alias_size_in_bytes) == (share, share)


def test_here_the_hosts_memory_is_the_devices():
    found = jax.jit(lambda x: jnp.tanh(to_host(x @ x)) @ x).lower(np.ones((64, 64), np.float32)).compile()
    stats = found.memory_analysis()
    assert stats.host_temp_size_in_bytes == stats.host_argument_size_in_bytes == 0
