"""Seconds of work on one device: the roofline, with what shapes and dtypes lose of its peaks.

The constants are those of hardware and compilers as public documents and measurements give them; `docs/plan-accuracy.md` says which of
them were fitted, and on what.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner.curves import Rates, at_size
from shardwise.planner.flops import HIGHEST, Product, Work
from shardwise.planner.machine import Chip
from shardwise.planner.work import NO_LOOKUPS, Lookups


@dataclass(frozen=True, slots=True)
class Reach:
    """The fractions of a platform's peaks that large, well-shaped work reaches.

    Attributes:
        products: of the FLOP/s of matrix units.
        memory: of the memory's bandwidth.
        links: of the network's bandwidth.
    """

    products: float
    memory: float
    links: float


REACH: Mapping[str, Reach] = {
    # Fitted on every other row of the published steps (benchmarks/plan.py, section "published").
    "tpu": Reach(0.86, 0.85, 0.9),
    # cuBLAS on H100 reaches 70 to 75 % of the data sheet under its power limit; STREAM-like kernels 90 %; NCCL 80 to 90 %.
    "gpu": Reach(0.76, 0.9, 0.85),
    # Figures of `here` are measured, not peaks.
    "cpu": Reach(1.0, 1.0, 1.0),
}
# The part of a transfer's time by which the computations beside it get longer. Fitted as those of "tpu" above.
BESIDE = 0.1
_WRITTEN_OUT = 4  # how much longer an operation takes in a product that is written out than in a loop over vectors
_SUBLANES = 8  # rows of a vector register: what a systolic array takes in at a time
_UNPACKED = 1 << 15  # bytes of a matrix that the first cache holds
_NEAR = 4  # a value of up to that part of the on-chip memory stays there until it is read


def reach_of(chip: Chip) -> Reach:
    """The efficiency of programs on a chip's platform."""
    return REACH.get(chip.platform, REACH["cpu"])


def stays_near(nbytes: int, chip: Chip) -> bool:
    """Whether a value that is read soon after it is made stays in on-chip memory."""
    return nbytes * _NEAR <= chip.vmem_bytes


@dataclass(frozen=True, slots=True)
class Seconds:
    """The time of a kernel.

    Attributes:
        total: its seconds.
        bound: what bounds it: 'flops', 'memory' or 'latency'.
    """

    total: float
    bound: str


def kernel_seconds(
    work: Work,
    far_bytes: float,
    near_bytes: float,
    chip: Chip,
    cached: float = 0.0,
    copies: int = 1,
    lookups: Lookups = NO_LOOKUPS,
    own: float = 0.0,
    written: float = 0.0,
    down: float = 0.0,
) -> Seconds:
    """Seconds of one kernel: matrix units, vector units and memory work at once; the slowest decides.

    A CPU's cores are both units, and pack the operands of products before they multiply: one after the other.

    Args:
        work: what is computed.
        far_bytes: read from and written to the main memory.
        near_bytes: of whole values in on-chip memory.
        chip: the device.
        cached: bytes of rows that the kernel itself has just had in the cache; they are read while memory is.
        copies: for how many devices it runs, where one chip stands for several.
        lookups: the places that a gather or scatter goes to.
        own: seconds of algorithms of their own, which run while memory is read.
        written: those of `far_bytes` that are written.
        down: those that a sum over other dims than the last reads.
    """
    reach = reach_of(chip)
    matrix = math.fsum(product_seconds(p, chip) for p in work.products)
    vector = work.vector / chip.vector_flops if chip.vector_flops else 0.0
    if chip.transcendental:
        vector += work.transcendentals / chip.transcendental
    again = math.fsum(_read_again(p, chip) for p in work.products)
    if chip.rates is None:
        memory = (far_bytes + again) / chip.hbm_bandwidth / reach.memory
    else:
        memory = _memory_seconds(far_bytes, near_bytes, written, down, chip.rates)
        matrix += math.fsum(_packing_seconds(p, chip.rates) for p in work.products)
    if near_bytes and chip.vmem_bandwidth:
        memory += near_bytes / chip.vmem_bandwidth
    vector += own
    one_by_one = chip.platform == "cpu"
    compute = copies * (matrix + vector if one_by_one else max(matrix, vector))
    if cached and chip.vmem_bandwidth:
        memory = max(memory, cached / chip.vmem_bandwidth)
    places = _place_seconds(lookups, chip)
    memory = copies * (memory + _lookup_seconds(lookups, chip) if places is None else max(memory, places))
    packs = matrix and one_by_one and chip.rates is None
    longest = compute + memory if packs else max(compute, memory)
    # What is all in on-chip memory starts at once; a kernel that reads or writes the memory first waits for it.
    overhead = chip.overhead if far_bytes or chip.platform != "tpu" else 0.0
    if chip.lookups_overhead and lookups.places:
        overhead = chip.lookups_overhead
    bound = "latency" if longest < overhead else "flops" if compute >= memory else "memory"
    return Seconds(longest + overhead, bound)


def _memory_seconds(far: float, near: float, written: float, down: float, rates: Rates) -> float:
    """Seconds for bytes of the main memory, which caches hold where a kernel touches few."""
    touched_bytes = far + near
    if not touched_bytes:
        return 0.0
    read_rate = at_size(rates.read, touched_bytes)
    seconds = max(far / at_size(rates.copied, touched_bytes), (far - written) / read_rate)
    seconds = max(seconds, written / at_size(rates.written, touched_bytes))
    if down:
        seconds += max(0.0, down / at_size(rates.down, touched_bytes) - down / read_rate)
    return seconds


def _packing_seconds(product: Product, rates: Rates) -> float:
    """Seconds in which the larger operand of a product is packed; one row reads it as it lies, and small ones are not packed."""
    held_bytes = max(product.m, product.n) * product.k * product.itemsize
    if min(product.m, product.n) == 1 or held_bytes <= _UNPACKED:
        return 0.0
    return product.batch * held_bytes / at_size(rates.packed, product.batch * held_bytes)


def _place_seconds(lookups: Lookups, chip: Chip) -> float | None:
    """Seconds for the places of gathers and scatters with their bytes; None of a machine that knows them without."""
    costs = chip.put if lookups.updates else chip.taken
    if costs is None:
        return None
    return lookups.places * lookups.pieces * costs.at(lookups.width / lookups.pieces, lookups.span)


def written_kernel_seconds(
    work: Work, far_bytes: float, near_bytes: float, moved_bytes: float, steps: float, chip: Chip
) -> Seconds:
    """Seconds of a kernel that a program brings along.

    Matrix and vector units take turns, as what one makes the other takes. On a TPU blocks are copied while others are computed, and a
    step of the grid takes `Chip.grid_step` at least; on a GPU blocks run at once, and what several of them read comes from the cache.

    Args:
        work: what is computed.
        far_bytes, near_bytes: of its operands and results, in memory and on the chip.
        moved_bytes: what its blocks read and write, of those in memory.
        steps: of its grid.
        chip: the device.
    """
    reach = reach_of(chip)
    matrix = math.fsum(product_seconds(p, chip) for p in work.products)
    vector = work.vector / chip.vector_flops if chip.vector_flops else 0.0
    if chip.transcendental:
        vector += work.transcendentals / chip.transcendental
    blocks = moved_bytes if chip.platform == "tpu" else far_bytes
    memory = blocks / (chip.hbm_bandwidth * reach.memory)
    if chip.vmem_bandwidth:
        memory = max(memory, (near_bytes + moved_bytes - blocks) / chip.vmem_bandwidth)
    compute = matrix + vector
    waits = steps * chip.grid_step
    longest = max(compute, memory, waits)
    bound = "latency" if longest < chip.overhead or longest == waits else "flops" if compute >= memory else "memory"
    return Seconds(longest + chip.overhead, bound)


def _lookup_seconds(lookups: Lookups, chip: Chip) -> float:
    """Seconds for the places of gathers and scatters besides their bytes: more for those that no cache holds."""
    window, element = (chip.update, chip.updated_element) if lookups.updates else (chip.lookup, chip.element)
    seconds = lookups.windows * window + lookups.elements * element
    if chip.far_lookups > 1:
        seconds *= 1 + (chip.far_lookups - 1) * max(0.0, 1 - chip.vmem_bytes / max(lookups.span, 1))
    return max(seconds + lookups.combined * chip.combined, lookups.repeats * chip.contended)


def product_seconds(product: Product, chip: Chip) -> float:
    """Seconds of a product on the matrix units alone."""
    rate = peak_flops(product, chip) * reach_of(chip).products
    if chip.platform == "gpu":
        return product.flops / rate / _wave_fill(product, chip)
    if chip.platform == "tpu":
        return 2.0 * product.batch * _padded_multiply_adds(product, chip.tile) / rate
    if not chip.product_overhead:
        return product.flops / rate
    # Products of few elements are written out in the code around them.
    return min(
        product.flops / rate + product.batch * chip.product_overhead, _WRITTEN_OUT * product.flops / chip.vector_flops
    )


def peak_flops(product: Product, chip: Chip) -> float:
    """The FLOP/s of the matrix units in the product's dtypes."""
    names = [d.name for d in product.dtypes]
    if all(name in chip.flops for name in names):
        rate = min(chip.flops[name] for name in names)
        if chip.platform == "gpu" and product.passes == HIGHEST and "float32" in names:
            return chip.vector_flops  # no product of halves
        return rate / (product.passes if chip.platform == "tpu" and "float32" in names else 1)
    floats = all(d.kind == "f" or d.kind == "V" for d in product.dtypes)
    narrow = chip.flops.get("bfloat16")
    if chip.platform == "tpu" and floats and narrow is not None:
        return narrow / product.passes
    if floats and chip.flops:
        return min(chip.flops.values()) if product.itemsize > 4 else max(min(chip.flops.values()), chip.vector_flops)
    return chip.vector_flops


def _padded_multiply_adds(product: Product, tile: int) -> float:
    """Multiply-adds of one matrix product on a systolic array.

    The array holds tile x tile elements of one operand while rows of the other pass through; the sides that it holds are padded to
    the tile, and at least a tile of rows must pass while the next weights are loaded.
    """
    sides = sorted((product.m, product.n))
    depth = _up(product.k, tile)
    held_small = _up(sides[0], tile) * max(_up(sides[1], _SUBLANES), tile)
    held_large = _up(sides[1], tile) * max(_up(sides[0], _SUBLANES), tile)
    return float(depth * min(held_small, held_large))


def _wave_fill(product: Product, chip: Chip) -> float:
    """The part of a GPU's processors that a product keeps busy: its tiles run in waves of one per processor, split over k if few."""
    tiles = product.batch * math.ceil(product.m / chip.tile) * math.ceil(product.n / chip.tile)
    used = product.batch * product.m * product.n / (tiles * chip.tile**2)
    splits = max(1, min(chip.units // tiles, product.k // 512)) if tiles < chip.units else 1
    waves = tiles * splits / chip.units
    return max(used, 1e-3) * waves / math.ceil(waves)


def _read_again(product: Product, chip: Chip) -> float:
    """Bytes of operands read more than once, because the on-chip memory holds only a block of the result at a time."""
    if chip.platform != "tpu" or not chip.vmem_bytes:
        return 0.0
    side = max(chip.tile, math.isqrt(chip.vmem_bytes // (2 * _NEAR)) // 2)
    rows, columns = math.ceil(product.m / side), math.ceil(product.n / side)
    if rows == 1 or columns == 1:
        return 0.0
    extra = product.m * product.k * (columns - 1) + product.k * product.n * (rows - 1)
    return float(product.batch * extra * product.itemsize)


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
