"""From which size on another way of computing pays: the measurements behind `shardwise.runtime.costs`.

    python benchmarks/thresholds.py [NAME ...]

Each table has the two ways beside each other, in microseconds, the least of several runs. The threshold lies where they
meet.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Program, ShapedArray, trace_program
from shardwise.lax import linalg
from shardwise.passes.inline import inline_calls
from shardwise.passes.schedule import schedule
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan
from shardwise.runtime.products.product import product_for
from shardwise.runtime.small.kernel import SmallKernel

Run = Callable[[], object]
Row = tuple[object, Run, Run]
Settings = Mapping[str, int]
Traced = Callable[..., Sequence[object]]
F32 = np.dtype(np.float32)
ENV = Env()


def traced(f: Traced, *shapes: tuple[int, ...]) -> Program:
    return inline_calls(trace_program(f, [ShapedArray(shape, F32) for shape in shapes])[0])


def values(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.linspace(0.1, 0.9, int(np.prod(s)), dtype=F32).reshape(s) for s in shapes]


def two_ways(program: Program, given: list[np.ndarray]) -> tuple[Run, Run]:
    """A program with its groups fused where that pays, and as one small program."""
    plan, small = Plan(schedule(program, ENV), ENV).run, SmallKernel(ENV, program)
    return lambda: plan(*given), lambda: small(*given)


def small_ops() -> Iterator[Row]:
    """Equations of six elements each: calls of NumPy, one small program (SMALL_FEWEST)."""
    for n in (1, 2, 4, 8, 16, 32):

        def f(x, n=n):
            for k in range(n):
                x = lax.add(x, x) if k % 2 else lax.mul(x, x)
            return [x]

        yield n, *two_ways(traced(f, (6,)), values((6,)))


def small_elements() -> Iterator[Row]:
    """Ten equations of so many elements: NumPy, or fused from FUSED_FEWEST on; one small program (SMALL_LARGEST)."""

    def f(x):
        for _ in range(4):
            x = lax.add(lax.sin(x), x)
        return [lax.sub(x, jnp.max(x))]

    for k in range(8, 19, 2):
        yield 1 << k, *two_ways(traced(f, (1 << k,)), values((1 << k,)))


def small_products() -> Iterator[Row]:
    """Products of square matrices of this side: the library, a small program (SMALL_PRODUCT is side 128)."""
    for n in (8, 32, 64, 96, 128, 160, 192, 256):
        yield n, *two_ways(traced(lambda a, b: [lax.dot(a, b)], (n, n), (n, n)), values((n, n), (n, n)))


def small_systems() -> Iterator[Row]:
    """Triangular systems of n unknowns with k right sides: LAPACK, a small program (SMALL_SYSTEMS is 128 and 8)."""
    for n, k in ((4, 1), (16, 16), (64, 8), (64, 64), (128, 8), (128, 32), (128, 128), (256, 8)):
        program = traced(lambda a, b: [linalg.triangular_solve(a, b, left_side=True)], (n, n), (n, k))
        a, b = np.eye(n, dtype=F32) + np.triu(np.full((n, n), 0.01, F32), 1), np.ones((n, k), F32)
        yield (n, k), *two_ways(program, [a, b])


def fused_elements() -> Iterator[Row]:
    """Three elementwise equations of so many elements: calls of NumPy, one fused loop (FUSED_FEWEST)."""

    def f(x, y):
        return [lax.add(lax.mul(lax.add(x, y), y), x)]

    (group,) = schedule(traced(f, (1 << 18,), (1 << 18,)), ENV).equations
    assert group.op.compile is not None
    for k in range(8, 19, 2):
        program, given = traced(f, (1 << k,), (1 << k,)), values((1 << k,), (1 << k,))
        plan = Plan(program, ENV).run
        loop = group.op.compile(ENV, program.in_types, program.out_types, {**group.params, "program": program})
        yield 1 << k, lambda plan=plan, given=given: plan(*given), lambda loop=loop, given=given: loop(*given)


def product_ways(m: int, n: int, k: int, a_setting: Settings, b_setting: Settings) -> tuple[Run, Run]:
    """A product on one thread, planned with thresholds set in two ways."""
    a, b = values((m, k), (k, n))
    out = np.empty((m, n), F32)

    def planned(settings: Settings) -> Run:
        kept = {name: getattr(costs, name) for name in settings}
        for name, value in settings.items():
            setattr(costs, name, value)
        run = product_for(a, b, out, 1)
        for name, value in kept.items():
            setattr(costs, name, value)
        return lambda: run(a, b, out)

    return planned(a_setting), planned(b_setting)


def numpy_products() -> Iterator[Row]:
    """Square matrices of this side on one thread: NumPy's library, our own calls (PRODUCT_NUMPYS is side 64)."""
    for n in (16, 32, 48, 64, 80, 96, 128):
        yield n, *product_ways(n, n, n, {"PRODUCT_NUMPYS": 1 << 40}, {"PRODUCT_NUMPYS": 0})


def numpy_lines() -> Iterator[Row]:
    """Square matrices of this side times a vector, one thread: NumPy's library, our own calls (LINE_NUMPYS is 96)."""
    for n in (16, 32, 64, 96, 128, 192, 256):
        yield n, *product_ways(n, 1, n, {"LINE_NUMPYS": 1 << 40}, {"LINE_NUMPYS": 0})


def shallow_products() -> Iterator[Row]:
    """f32[128, k] @ f32[k, 256] on one thread: the library, our own strips (SHALLOW_DEEPEST)."""
    for k in (16, 64, 128, 256, 384, 512, 768):
        yield k, *product_ways(128, 256, k, {"SHALLOW_DEEPEST": 0}, {"SHALLOW_DEEPEST": 1 << 40})


TABLES = {
    f.__name__: f
    for f in (
        small_ops,
        small_elements,
        small_products,
        small_systems,
        fused_elements,
        numpy_products,
        numpy_lines,
        shallow_products,
    )
}


def microseconds(run: Run) -> float:
    run()
    start = time.perf_counter()
    run()
    repeats = max(3, min(5000, int(0.02 / (time.perf_counter() - start))))
    found = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        found.append((time.perf_counter() - start) / repeats)
    return min(found) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *TABLES], help=f"of {', '.join(TABLES)}; all if none is given")
    for name in parser.parse_args().names or TABLES:
        print(f"{name}: {TABLES[name].__doc__}")
        for size, one, other in TABLES[name]():
            print(f"  {size!s:>12} {microseconds(one):10.2f} {microseconds(other):10.2f}")


if __name__ == "__main__":
    main()
