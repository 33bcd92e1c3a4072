"""More than 2**31 elements: where a count does not fit into MPI's int. Takes 10 GB."""

import numpy as np

import shardwise as jax
from shardwise.runtime.processes.comm import the_world

jax.distributed.initialize(heartbeat_timeout_seconds=300)
me, n = jax.process_index(), jax.process_count()
link = the_world().link(tuple(range(n)))
size = (1 << 31) + 5
x = np.full(size, me + 1, np.int8)
x[-1] = 10 * (me + 1)
total = link.all_reduce(x, "sum", 1)
assert total.size == size and total[0] == total[1 << 31] == 3 and total[-1] == 30
del total
if me == 0:
    link.swap([(1, x)], [], 1, [x.shape], 1, 2)
else:
    got = np.empty_like(x)
    link.swap([], [(0, 0, got)], 1, [x.shape], 1, 2)
    assert got[-1] == 10 and got[1 << 31] == 1
    del got
half = x[: size // 2]
every = np.empty((n, half.size), np.int8)
link.all_gather(half, list(every), 3)
assert every[0, -1] == 1 and every[1, -1] == 2
print("done", flush=True)
