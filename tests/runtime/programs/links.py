"""The exchanges between processes on both kinds of links: every dtype and size, strided arrays, and what is counted."""

import itertools

import ml_dtypes
import numpy as np

import shardwise as jax
from shardwise.runtime.monoids import MONOIDS
from shardwise.runtime.processes.comm import the_world
from shardwise.runtime.processes.network import NetworkLink
from shardwise.runtime.processes.shared import SharedLink
from shardwise.runtime.processes.traffic import count_traffic

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me, n = jax.process_index(), jax.process_count()
everyone = tuple(range(n))
world = the_world()
shared = world.link(everyone)
assert isinstance(shared, SharedLink)
ROOM = shared.room
network = NetworkLink(world.mpi, world.group(everyone), crowded=False)
crowded = NetworkLink(world.mpi, world.group(everyone), crowded=True)
TYPES = [
    np.dtype(t)
    for t in (
        "f4",
        "f8",
        "f2",
        "c8",
        "c16",
        "i1",
        "u8",
        "i4",
        "?",
        ml_dtypes.bfloat16,
        ml_dtypes.int4,
        ml_dtypes.float8_e4m3fn,
    )
]
KINDS = {"f": ("sum", "max", "min", "prod"), "c": ("sum", "prod"), "i": tuple(MONOIDS), "u": tuple(MONOIDS),
         "b": ("and", "or", "xor", "max"),
         "V": ("sum", "max")}  # fmt: skip


def values(dtype, shape, of):
    """What process `of` brings; small whole numbers, so that sums are exact in every type."""
    count = int(np.prod(shape))
    pattern = ((np.arange(3) + of) % 3).astype(np.int8).astype(dtype)
    return np.tile(pattern, count // 3 + 1)[:count].reshape(shape)


def folded(kind, arrays):
    out = arrays[0].copy()
    for x in arrays[1:]:
        out = MONOIDS[kind].merge(out, x).astype(out.dtype)
    return out


def same(got, want, what):
    assert got.dtype == want.dtype and got.shape == want.shape, what
    assert got.tobytes() == want.tobytes(), what


tags = itertools.count(1)
BUSY = {"float32", "bool", "bfloat16"}  # `network` and `crowded` differ in how they wait alone
for link, dtype in itertools.product((shared, network, crowded), TYPES):
    if link is network and dtype.name not in BUSY:
        continue
    lengths = (0, 1, n, 7, 5001)
    if dtype.name == "float32" and link is not crowded:  # in several pieces
        lengths += (ROOM // 2 + 5,)
    elif dtype.name == "int8" and link is shared:
        lengths += (3 * ROOM,)
    for length in lengths:
        what = f"{type(link).__name__} {dtype} {length}"
        tag = next(tags)
        brought = [values(dtype, (1, length), k) for k in everyone]
        for kind in KINDS[dtype.kind] if length < 100 else KINDS[dtype.kind][:1]:
            with count_traffic() as traffic:
                got = link.all_reduce(brought[me], kind, tag)
            same(got, folded(kind, brought), f"{what} {kind}")
            assert traffic.bytes == {"all_reduce": 2 * (n - 1) * brought[0].nbytes // n} and traffic.total_calls == 1, (
                what
            )
        three = [values(dtype, (1, length), k) for k in range(3 * n)]
        kind = KINDS[dtype.kind][0]
        same(link.all_reduce(three[3 * me], kind, tag, *three[3 * me + 1 : 3 * me + 3]), folded(kind, three), what)
        # parts of uneven sizes, from and into every second element
        sizes = [length + k for k in everyone]
        parts = [[values(dtype, (2, 2 * sizes[to]), k + to)[:, ::2] for to in everyone] for k in everyone]
        out = np.zeros((2, 2 * sizes[me]), dtype)[:, ::2]
        kind = KINDS[dtype.kind][0]
        with count_traffic() as traffic:
            link.reduce_scatter(parts[me], out, kind, tag)
        same(np.ascontiguousarray(out), folded(kind, [np.ascontiguousarray(parts[k][me]) for k in everyone]), what)
        assert traffic.total_bytes == sum(p.nbytes for k, p in enumerate(parts[me]) if k != me), what
        own = [np.asfortranarray(values(dtype, (2, s), k)) for k, s in enumerate(sizes)]
        room = np.zeros((2, sum(sizes)), dtype)
        takes = np.split(room, np.cumsum(sizes)[:-1].tolist(), axis=1)
        with count_traffic() as traffic:
            link.all_gather(own[me], takes, tag)
        same(room, np.concatenate(own, axis=1), what)
        assert traffic.total_bytes == own[me].nbytes * (n - 1), what
        # process 0 sends to all others, and the last one to process 0
        messages = [(0, to, (3, length + to)) for to in everyone[1:]] + [(n - 1, 0, (2, length))]
        sends = [(to, values(dtype, shape, to)) for k, to, shape in messages if k == me]
        places = {m: [x for x in messages if x[0] == m[0]].index(m) for m in messages}
        filled = [(m, np.zeros((2 * m[2][0], m[2][1]), dtype)[::2]) for m in messages if m[1] == me]
        with count_traffic() as traffic:
            link.swap(
                sends,
                [(m[0], places[m], x) for m, x in filled],
                n,
                [m[2] for m in messages],
                np.dtype(dtype).itemsize,
                tag,
            )
        for (_, to, shape), x in filled:
            same(np.ascontiguousarray(x), values(dtype, shape, to), what)
        assert traffic.total_bytes == sum(x.nbytes for _, x in sends), what
    assert link.meet(5) and not link.meet(me) and link.meet(7)

nans = np.array([np.nan if me == n - 1 else 1.0, 2.0, -0.0], np.float32)
for link in (shared, network):
    same(link.all_reduce(nans, "max", 1), np.array([np.nan, 2.0, -0.0], np.float32), "NaN")
for length in (4, 100_000):  # of zeros 0.0 is the greater one, whoever brings it, and -0.0 the lesser one
    zeros = np.full(length, 0.0 if me == n - 1 else -0.0, np.float32)
    for link in (shared, network):
        assert not np.signbit(link.all_reduce(zeros, "max", 1)).any(), (length, link)
        assert np.signbit(link.all_reduce(zeros, "min", 1)).all(), (length, link)
print("done", flush=True)
