"""The load of collectives on the links of a torus, one mesh axis a ring of it.

In: bytes of a device's operand, and the sizes of the axes. Out: the bytes of the busiest link and the hops, for each axis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

Traffic = tuple[int, int]  # bytes on the busiest link, hops


def ring(nbytes: float, sizes: Sequence[int]) -> Traffic:
    """Every device gets the parts of `nbytes` of all others.

    The operand is cut into as many pieces as there are axes; each goes around the axes in another order, and grows with every axis. The
    piece that begins with the longest axis is the last.
    """
    longest_first = sorted(sizes, reverse=True)
    part = nbytes // len(longest_first)
    carried_bytes = 0.0
    for size in longest_first:
        carried_bytes += part * (size - 1)
        part *= size
    return int(carried_bytes), longest_first[0] * len(longest_first)


def transpose(nbytes: float, sizes: Sequence[int]) -> Traffic:
    """Every device sends another part of its `nbytes` to each other one: half of all crosses the middle of the longest axis."""
    shortest = min(sizes)
    # A ring of three devices or more has two ways across.
    links = shortest ** (len(sizes) - 1) * (2 if shortest > 2 else 1)
    return int(nbytes * math.prod(sizes) / 2 / links), int(sum(size / 2 for size in sizes))


def permutation(nbytes: float, pairs: Sequence[tuple[int, int]], sizes: Sequence[int]) -> Traffic:
    """Device `a` sends its `nbytes` to `b` for each pair, along one axis after the other, the shorter way around each."""
    bytes_by_link: Counter[frozenset[tuple[int, ...]]] = Counter()
    most_hops = 0
    for source, target in pairs:
        start = [int(i) for i in np.unravel_index(source, sizes)]
        end = [int(i) for i in np.unravel_index(target, sizes)]
        hops = 0
        for axis, size in enumerate(sizes):
            ahead = (end[axis] - start[axis]) % size
            step, distance = (1, ahead) if ahead <= size - ahead else (-1, size - ahead)
            here = list(start)
            for _ in range(distance):
                there = list(here)
                there[axis] = (here[axis] + step) % size
                bytes_by_link[frozenset((tuple(here), tuple(there)))] += 1
                here = there
            hops += distance
        most_hops = max(most_hops, hops)
    return int(nbytes * max(bytes_by_link.values(), default=0)), most_hops


def per_axis(traffic: Traffic, axes: Sequence[str]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The same bytes and hops for each axis: pieces in all orders keep them equally busy."""
    nbytes, hops = traffic
    return dict.fromkeys(axes, nbytes), dict.fromkeys(axes, hops)
