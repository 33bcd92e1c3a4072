"""One process that times cases with one library: `python child.py shardwise|jax|numpy CASE ...`; a line of JSON for each.

`numpy` measures the machine instead: the rate of a copy, and of a matrix product.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MEASURE_SECONDS = 0.5
LEAST_CALLS = 5


def status(field: str) -> float:
    """A field of this process's status in MB, or 0 where the system does not say."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith(field))
    except (OSError, StopIteration):
        return 0.0


def forget_peak() -> None:
    """Let the peak of the resident memory begin anew."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def timed(call: Any, wait: Any) -> dict[str, float]:
    """The seconds of the first call, and of others the median and the least; each waits for its result."""
    begin = time.perf_counter()
    wait(call())
    first = time.perf_counter() - begin
    times: list[float] = []
    end = time.perf_counter() + MEASURE_SECONDS
    while len(times) < LEAST_CALLS or time.perf_counter() < end:
        begin = time.perf_counter()
        wait(call())
        times.append(time.perf_counter() - begin)
        if len(times) >= 2 and time.perf_counter() > end + 4 * MEASURE_SECONDS:  # slow: a few calls must do
            break
    return {"first": first, "median": statistics.median(times), "least": min(times), "calls": len(times)}


def load_compilers() -> None:
    """Run small programs, so that no row bears what a library loads once in a process. JAX loads it in the first row of all,
    shardwise in the first that makes a loop, and in the first that multiplies. Cases that are `first` bear it: they run in processes of
    their own.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    def chain(x: Any) -> Any:
        for _ in range(12):
            x = x * 0.9 + 0.1
        return x

    few, many = np.ones(8, np.float32), np.ones((512, 512), np.float32)
    for program, x in ((chain, few), (lambda x: 2 * jnp.sin(x) + 1, many), (lambda x: x @ x, many)):
        jax.block_until_ready(jax.jit(program)(x))


def measured(name: str) -> dict[str, Any]:
    """The figures of a case; `peak` is what it took of memory beyond what the process had, in MB."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from run import CASES

    gc.collect()
    forget_peak()
    before = status("VmRSS")
    found = CASES[name]
    if found.first:
        call, wait = found.prepare(jax, jnp, np), jax.block_until_ready
        begin = time.perf_counter()
        wait(call())
        return {"first": time.perf_counter() - begin}
    figures = timed(found.prepare(jax, jnp, np), jax.block_until_ready)
    return {**figures, "peak": status("VmHWM") - before}


def machine() -> None:
    """Bytes per second of a copy by all threads into memory that has its pages; operations per second of a product."""
    import numpy as np

    x = np.ones((4096, 4096), np.float32)
    y = np.empty_like(x)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as workers:
        parts = list(zip(np.array_split(y, threads), np.array_split(x, threads), strict=True))
        copy = timed(lambda: list(workers.map(lambda p: np.copyto(*p), parts)), lambda _: None)["least"]
    a = np.ones((2048, 2048), np.float32)
    product = timed(lambda: np.matmul(a, a, out=y[:2048, :2048]), lambda _: None)["least"]
    print(json.dumps({"copy": 2 * x.nbytes / copy, "flops": 2 * 2048**3 / product}), flush=True)


def main() -> None:
    """Time the cases, one after the other."""
    library, *names = sys.argv[1:]
    if library == "numpy":
        machine()
        return
    if library == "shardwise":
        from shardwise import alias

        alias.install()
    from run import CASES

    if not all(CASES[name].first for name in names):
        load_compilers()
    for name in names:
        try:
            figures = measured(name)
        except Exception as error:
            figures = {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"}
        print(json.dumps({"case": name, **figures}), flush=True)


if __name__ == "__main__":
    main()
