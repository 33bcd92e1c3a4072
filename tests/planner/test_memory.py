"""Which buffers a device holds, and the most bytes at once."""

from __future__ import annotations

import dataclasses

import pytest

from shardwise import checkpoint, checkpoint_policies, grad, lax
from shardwise.ad_checkpoint import checkpoint_name
from shardwise.ir import bind
from shardwise.ops.devices.barrier import offload_p
from shardwise.ops.devices.layout import enter_auto_op
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.target import CPU_XLA, TPU
from tests.planner.device_programs import array, device_program, exchanged, gathered, shifted, varying

X = array(256, 256)
N = 256 * 256 * 4


def memory(f, *types, donated=(), target=TPU):
    program = device_program(f, *types or (X,), donated=donated)
    return memory_of(program, groups(program, target), target)


def test_a_chain_needs_nothing_but_its_operand_and_its_result():
    found = memory(lambda x: [lax.tanh(lax.exp(x))])
    assert (found.arguments, found.results, found.temporaries, found.peak) == (N, N, 0, 2 * N)


def test_a_donated_argument_is_written_over_by_the_last_kernel_that_reads_it():
    found = memory(lambda x: [lax.tanh(x)], donated=(0,))
    assert (found.aliased, found.temporaries, found.peak) == (N, 0, N)


def test_a_donated_argument_that_a_product_reads_is_copied_into_afterwards():
    found = memory(lambda x: [lax.dot(x, x)], donated=(0,))
    assert (found.aliased, found.temporaries, found.peak) == (N, N, 2 * N)


def test_temporaries_die_with_their_last_reader():
    found = memory(lambda x: [lax.dot(lax.dot(lax.dot(lax.dot(x, x), x), x), x)])
    assert found.temporaries == 2 * N


def test_a_kernel_writes_over_an_operand_that_dies():
    def f(x):
        y = lax.dot(x, x)
        return [lax.dot(lax.mul(y, 2.0), x)]

    assert memory(f, target=CPU_XLA).temporaries == N


def test_a_product_writes_over_no_view_of_its_operand():
    f = lambda x: [lax.dot(lax.dot(lax.transpose(lax.tanh(x), (1, 0)), x), x)]  # noqa: E731
    assert memory(f, target=CPU_XLA).temporaries == N


def test_branches_write_their_results_where_those_of_the_conditional_lie():
    f = lambda p, x: [lax.cond(p, lambda x: lax.tanh(lax.dot(x, x)), lambda x: lax.dot(lax.exp(x), x), x)]  # noqa: E731
    assert N <= memory(f, array(dtype="bool"), X, target=CPU_XLA).temporaries < 1.01 * N


def test_what_is_updated_lies_in_one_place():
    def f(x, rows):
        return [lax.dot(lax.dynamic_update_slice(lax.full_like(x, 0.0), lax.dot(rows, x), (0, 0)), x)]

    assert memory(f, X, array(128, 256), target=CPU_XLA).temporaries == N


def test_a_carry_lies_in_memory_though_nobody_reads_what_it_was_last():
    def f(x):
        step = lambda c: (c[0] + 1, lax.add(c[1], c[2]), lax.sub(lax.cos(c[1]), c[2]))  # noqa: E731
        return [lax.while_loop(lambda c: c[0] < 9, step, (0, x, x))[1]]

    assert N <= memory(f, target=CPU_XLA).temporaries <= N + 64  # the counter, too


def squares(count):
    def f(x):
        y = x
        for _ in range(count):
            y = lax.dot(y, x)
        return [y]

    return f


@pytest.mark.parametrize(("count", "needed"), [(2, N), (3, N), (4, 2 * N), (6, 2 * N)])
def test_temporaries_lie_where_the_result_will_be(count, needed):  # as XLA for CPUs says
    found = memory(squares(count), target=CPU_XLA)
    assert found.temporaries == needed
    assert sum(b.nbytes * b.count for b in found.buffers) == found.peak


def test_leaving_shard_map_copies_nothing():
    f = lambda x: [lax.exp(bind(enter_auto_op, lax.dot(x, x), axes=()))]  # noqa: E731
    assert memory(f, target=CPU_XLA).temporaries == 0


def test_a_result_is_written_over_its_operand():
    assert memory(lambda x: [lax.tanh(lax.dot(x, x))], target=CPU_XLA).temporaries == 0


def test_large_temporaries_take_large_results():
    found = memory(lambda x, y: [lax.dot(lax.dot(lax.dot(x, x), x), y)], X, array(256, 1024), target=CPU_XLA)
    assert found.temporaries == N


def test_no_temporary_lies_in_a_result_that_is_there():
    found = memory(lambda x: [lax.tanh(x), lax.dot(lax.dot(x, x), x)], target=CPU_XLA)
    assert found.temporaries == N


def test_the_carry_of_a_loop_stays_where_it_is():
    found = memory(lambda x: [lax.fori_loop(0, 5, lambda i, c: lax.tanh(c), x)], donated=(0,))
    assert found.temporaries < 1000


def test_a_carry_that_a_product_reads_has_a_second_buffer():
    found = memory(lambda x: [lax.fori_loop(0, 5, lambda i, c: lax.dot(c, c), x)], donated=(0,))
    assert found.temporaries == pytest.approx(N, rel=0.01)  # and a counter


def test_stacked_results_are_written_where_they_lie():
    def f(x):
        _, rows = lax.scan(lambda c, _: (c, lax.tanh(c)), x, None, length=10)
        return [rows]

    found = memory(f)
    assert found.results == 10 * N
    assert found.temporaries < N


def test_the_buffers_at_the_peak_add_up_to_it():
    def f(x):
        y = lax.dot(x, x)
        return [lax.dot(y, lax.dot(y, x)), lax.reduce_sum(y, axes=(0,))]

    found = memory(f, donated=(0,))
    assert sum(b.nbytes * b.count for b in found.buffers) == found.peak
    assert max(found.usage) == found.peak


def test_results_are_padded_to_tiles_and_arguments_are_not():
    found = memory(lambda x: [lax.tanh(x)], array(256, 64))
    assert (found.arguments, found.results) == (256 * 64 * 4, 256 * 128 * 4)


def test_a_gather_starts_beside_the_product_before_it():
    def f(x, a, b):
        return [lax.dot(lax.dot(x, gathered(a, 8)), gathered(b, 8))]

    found = memory(f, X, varying(32, 256), varying(32, 256), donated=(0,))
    assert found.temporaries == 3 * N  # two gathered values and a product
    target = dataclasses.replace(TPU, asynchronous=False)
    waiting = memory(f, X, varying(32, 256), varying(32, 256), donated=(0,), target=target)
    assert waiting.temporaries == 2 * N


def test_an_exchange_copies_before_and_after():
    found = memory(lambda x: [exchanged(x, 8)], varying(256, 256))
    assert found.temporaries == 2 * N
    plain = memory(
        lambda x: [exchanged(x, 8)], varying(256, 256), target=dataclasses.replace(TPU, exchange_copies=False)
    )
    assert plain.temporaries == 0


def test_an_entry_of_a_stacked_array_is_read_where_it_lies():
    def f(x, stack):
        return [lax.scan(lambda c, w: (lax.tanh(lax.add(c, w)), None), x, stack)[0]]

    assert memory(f, X, array(4, 256, 256), donated=(0,)).temporaries < 1000


def test_an_entry_that_is_sent_is_copied():
    def f(x, stack):
        return [lax.scan(lambda c, w: (lax.tanh(lax.add(c, gathered(w, 8))), None), x, stack)[0]]

    found = memory(f, X, varying(4, 32, 256), donated=(0,))
    assert found.temporaries == pytest.approx(N + N // 8, rel=0.01)  # and a counter


def test_no_kernel_writes_over_an_operand_that_it_reads_elsewhere():
    def reversed_sum(x, spare):
        y = lax.dot(x, x)
        return [lax.dot(lax.add(y, lax.rev(y, (0,))), x)]

    def plain_sum(x, spare):
        y = lax.dot(x, x)
        return [lax.dot(lax.add(y, lax.exp(y)), x)]

    assert memory(reversed_sum, X, X, donated=(1,), target=CPU_XLA).temporaries == 2 * N
    assert memory(plain_sum, X, X, donated=(1,), target=CPU_XLA).temporaries == N


def test_a_halo_exchange_takes_what_it_fetches():
    def f(x):
        return [lax.fori_loop(0, 5, lambda i, u: lax.add(u, shifted(u, 8)), x)]

    found = memory(f, varying(256, 256), donated=(0,))
    assert N <= found.temporaries < 1.1 * N  # the next carry, and one row


def saved_or_offloaded(policy, layers=8):
    """The bytes of temporaries of the gradient of `layers` layers under a checkpoint policy."""

    def layer(x, w):
        return lax.tanh(checkpoint_name(lax.dot(x, w), "hidden")), None

    def loss(x, stack):
        return lax.reduce_sum(lax.scan(checkpoint(layer, policy=policy), x, stack)[0], axes=(0, 1))

    return memory(lambda x, stack: [grad(loss)(x, stack)], X, array(layers, 256, 256)).temporaries


def test_what_a_policy_offloads_waits_with_the_host():
    where = {"offload_src": "device", "offload_dst": "pinned_host"}
    names = {"names_which_can_be_saved": [], "names_which_can_be_offloaded": ["hidden"]}
    kept = saved_or_offloaded(checkpoint_policies.save_only_these_names("hidden"))
    offloaded = saved_or_offloaded(checkpoint_policies.save_and_offload_only_these_names(**names, **where))
    assert kept - offloaded >= 7 * N  # eight stacked values, of which one comes back at a time


def test_a_value_in_the_hosts_memory_takes_none_of_the_devices():
    def f(x, place):
        y = place(lax.dot(x, x))
        z = lax.dot(lax.dot(lax.dot(x, x), x), x)
        return [lax.dot(lax.dot(z, y), x)]

    kept = memory(lambda x, spare: f(x, lambda y: y), X, X, donated=(1,))
    waiting = memory(lambda x, spare: f(x, lambda y: bind(offload_p, y, memory_kind="pinned_host")), X, X, donated=(1,))
    assert kept.temporaries == 3 * N
    assert waiting.usage[3] == kept.usage[3] - N  # a product of those in between


def test_buffers_of_loops_say_what_they_are_for():
    def f(x):
        last, rows = lax.scan(lambda c, _: (lax.tanh(c), lax.exp(c)), lax.dot(x, x), None, length=4)
        return [lax.dot(last, lax.cumsum(rows, axis=0)[0])]

    kinds = {(b.kind, b.nbytes) for b in memory(f).buffers if b.name == "scan"}
    assert ("saved", 4 * N) in kinds
    assert ("carry", N) in kinds


def test_the_operand_of_a_saved_value_is_not_saved_besides():
    """The backward pass begins from the named value, which is the layer's input: the input itself is not needed."""

    def layer(x, w):
        x = checkpoint_name(lax.mul(x, 2.0), "input")
        return lax.tanh(lax.dot(x, w)), None

    def loss(x, stack):
        policy = checkpoint_policies.save_only_these_names("input")
        return lax.reduce_sum(lax.scan(checkpoint(layer, policy=policy), x, stack)[0], axes=(0, 1))

    found = memory(lambda x, stack: [grad(loss, 1)(x, stack)], X, array(8, 256, 256))
    saved = [b for b in found.buffers if b.kind == "saved" and b.nbytes == 8 * N]
    assert sum(b.count for b in saved) == 1


def test_entries_of_stacked_arrays_are_listed_in_the_order_of_the_loop():
    powers = [2**i for i in range(7)]
    shapes = [(a, 128 * b, 128 * c) for a in powers[:3] for b in powers for c in powers if a * b * c == 64]

    def body(c, rows):
        summed = lambda row: lax.reduce_sum(gathered(row, 4), axes=(0, 1, 2))  # noqa: E731
        total = sum(map(summed, rows), c)
        return sum([summed(lax.mul(row, total)) for row in rows]), None

    found = memory(lambda x, *stacks: [lax.scan(body, x, stacks)[0]], varying(), *[varying(4, *s) for s in shapes])
    listed = [b.type for b in found.buffers if b.name == "entry of a stacked array"]
    assert listed == [f"f32[{a},{b},{c}]" for a, b, c in shapes]
