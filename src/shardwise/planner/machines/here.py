"""This machine as one that can be planned for: what our own kernels reach on it, measured once and kept on disk.

The measurement takes about ten seconds. It is kept in the folder of compiled kernels, and made anew where the processor, the number of
threads or the version changes; without that folder it is made in each process.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ml_dtypes
import numpy as np

from shardwise.engine.device_put import device_put
from shardwise.ops.elementwise import binary, transcendental, unary
from shardwise.ops.indexing.gather import gather
from shardwise.ops.indexing.window_numbers import GatherDimensionNumbers
from shardwise.ops.products.contract import dot_general
from shardwise.planner.machine import Chip, Level, Machine
from shardwise.planner.machines.functions import function_costs, is_of_function, measured_functions
from shardwise.planner.machines.sizes import is_of_places, measured_sizes, place_costs, rates
from shardwise.runtime.machine import kernel_store, thread_count

Timer = Callable[[], float]
_LARGE = 1 << 24  # elements of a value that no cache holds for long
_SECONDS = 0.1  # for each figure: the least of many calls, for others use the machine as well
_PRODUCTS = 256  # of matrices that caches hold
_ROWS = GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
_POWER, _MULTIPLICATIONS = 1023, 18  # by squares
_BESIDE = 4  # of the norm of two times at once: nearly the longer
_SECONDS_OF = ("call", "product", "lookups")
_STEP = "step of "  # figures of algorithms
_FILE = "here.json"
_MEASURES = 6  # raised where other figures are measured


@cache
def this_machine() -> Machine:
    """This machine, as one device of one process."""
    return machine_of(_read_stored_rates() or _keep(measure()))


def machine_of(figures: Mapping[str, float]) -> Machine:
    """The machine with these rates, as `measure` gives them."""
    memory, cache_bytes = _memory_bytes(), _cache_bytes()
    chip = Chip(
        kind="cpu",
        platform="cpu",
        flops={
            **{name: figures[name] for name in ("float32", "bfloat16", "float16")},
            "float64": figures["float32"] / 2,  # half as many lanes; arrays of it need an option, so it is not measured
        },
        vector_flops=figures["vector"],
        hbm_bytes=memory,
        usable_bytes=memory,
        hbm_bandwidth=figures["memory"],
        rates=rates(figures),
        vmem_bytes=cache_bytes,
        vmem_bandwidth=figures["cache"],
        tile=16,
        transcendental=figures["transcendental"],
        function_costs=function_costs(figures, figures["transcendental"]),
        overhead=figures["call"],
        product_overhead=figures["product"],
        taken=place_costs(figures, updates=False),
        put=place_costs(figures, updates=True),
        lookups_overhead=figures["lookups"],
        steps={name.removeprefix(_STEP): figures[name] for name in figures if name.startswith(_STEP)},
    )
    level = Level("network", (1,), (False,), True, figures["memory"], figures["call"])
    source = f"measured on {platform.node() or 'this machine'} with {thread_count()} threads"
    return Machine("here", chip, (level,), 1, (source,), (), ("all devices of this machine share its processors",))


def measure(timer: Timer = time.perf_counter) -> dict[str, float]:
    """Rates of our kernels: bytes/s of memory by how many are touched, and of caches, FLOP/s by dtype and of vector code, elements/s of
    exp; seconds of a call, of each product of a batch, of a call that looks something up, and of each place where it does, by its bytes
    and those of the table; of a step of each algorithm, and of an element of each function.

    Seconds are those of `timer`.
    """
    from shardwise.planner.machines import algorithms  # start-up time: it brings all ops

    least = partial(_least, timer)
    briefly = partial(least, seconds=_SECONDS / 4)
    near = np.linspace(0.5, 1.5, max(1 << 14, _cache_bytes() // 24), dtype=np.float32)
    # With its result in half of the caches, and work for threads.
    middle = np.linspace(0.999, 1.001, _cache_bytes() // 16, dtype=np.float32)  # whose powers are ordinary numbers
    far = np.linspace(0.5, 1.5, _LARGE, dtype=np.float32)
    few = np.ones(8, np.float32)
    call = _seconds(timer, binary.add, few, few)
    table, order = np.zeros((8, 16), np.float32), np.arange(2, dtype=np.int32)[:, None]
    move_seconds, all_moved = (max(_seconds(timer, unary.neg, x) - call, call / 4) for x in (near, middle))
    exp = computing_seconds(_seconds(timer, transcendental.exp, near) - call, move_seconds)
    figures = {
        "memory": 2 * far.nbytes / _seconds(timer, unary.neg, far),
        "cache": 3 * near.nbytes / (_seconds(timer, binary.add, near, near) - call),
        "vector": _MULTIPLICATIONS * middle.size / computing_seconds(_seconds(timer, _power, middle) - call, all_moved),
        "transcendental": near.size / exp,
        "call": call,
        "lookups": _seconds(timer, _rows, table, order),
    }
    side = 1024
    for dtype in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)):
        matrix = np.ones((side, side), dtype)
        figures[dtype.name] = 2 * side**3 / _seconds(timer, _product, matrix, matrix)
    small = np.ones((_PRODUCTS, 16, 16), np.float32)
    known_seconds = call + 2 * small.size * 16 / figures["float32"] + 3 * small.nbytes / figures["cache"]
    figures["product"] = max(_seconds(timer, _batched_dot, small, small) - known_seconds, 0.0) / _PRODUCTS
    figures |= measured_sizes(briefly, call, figures["lookups"], figures["float32"])
    steps = algorithms.measured_steps(least, call, figures["memory"])
    figures |= {_STEP + name: seconds for name, seconds in steps.items()}
    return figures | measured_functions(briefly, call, near.size, lambda took: computing_seconds(took, move_seconds))


def computing_seconds(both: float, memory: float) -> float:
    """The seconds of computing, of those in which a kernel computes and moves bytes at once; a tenth of them at least."""
    return max(both**_BESIDE - memory**_BESIDE, (both / 10) ** _BESIDE) ** (1 / _BESIDE)


def is_seconds(figure: str) -> bool:
    """Whether a figure is seconds; the others are rates."""
    return figure in _SECONDS_OF or figure.startswith(_STEP) or is_of_function(figure) or is_of_places(figure)


def _batched_dot(x: Any, y: Any) -> Any:
    return dot_general(x, y, (((2,), (1,)), ((0,), (0,))))


def _rows(x: Any, order: Any) -> Any:
    return gather(x, order, _ROWS, (1, x.shape[1]))


def _power(x: Any) -> Any:
    return unary.integer_pow(x, _POWER)


def _product(x: Any, y: Any) -> Any:
    return dot_general(x, y, (((1,), (0,)), ((), ())))


def _seconds(timer: Timer, op: Callable[..., Any], *values: Any) -> float:
    """The least seconds of a call of one op; others may use the machine at the same time."""
    arrays = [device_put(v) for v in values]

    def call() -> None:
        op(*arrays)

    return _least(timer, call)


def _least(timer: Timer, call: Callable[[], Any], seconds: float = _SECONDS) -> float:
    call()
    best, start, latest = float("inf"), timer(), time.perf_counter() + 10 * seconds
    while timer() < start + seconds and time.perf_counter() < latest:
        begin = timer()
        call()
        best = min(best, timer() - begin)
    return best


def _stamp() -> list[Any]:
    """The conditions under which the measurement holds."""
    try:
        own = version("shardwise")
    except PackageNotFoundError:
        own = ""
    return [own, platform.machine(), _processor(), thread_count(), _MEASURES]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _read_stored_rates() -> Mapping[str, float] | None:
    folder = kernel_store.folder()
    if folder is None:
        return None
    try:
        with open(os.path.join(folder, _FILE)) as file:
            stored_rates = json.load(file)
    except (OSError, ValueError):
        return None
    return stored_rates["figures"] if stored_rates.get("stamp") == _stamp() else None


def _keep(figures: dict[str, float]) -> dict[str, float]:
    folder = kernel_store.folder()
    if folder is not None:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            path = os.path.join(folder, _FILE)
            with open(f"{path}.{os.getpid()}", "w") as file:
                json.dump({"stamp": _stamp(), "figures": figures}, file)
            os.replace(f"{path}.{os.getpid()}", path)
        except OSError:
            pass  # it is measured again next time
    return figures


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cache_bytes() -> int:
    """The second-level caches of the processors that our threads use."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size") as file:
            size = int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        size = 1 << 20
    return size * thread_count()
