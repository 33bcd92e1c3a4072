"""Each function of JAX's namespaces within a loop: which ones keep a loop of few elements from being one machine function.

    python benchmarks/functions_in_loops.py [--under-vmap] [--least RATIO] [WORD ...]

The table is made from the namespaces: each function with each of a few kinds of small operands that it takes, in a `fori_loop` whose
rounds depend on each other. Both libraries run it, each in a process of its own; the processor's time per round is printed where ours is
more than RATIO times JAX's. WORDs choose rows.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from separate import answer

ROUNDS = 100
LIMIT = 10  # seconds for one function, compilation included
Function = Callable[..., Any]
Row = tuple[str, Function, tuple[Any, ...]]


class Overdue(Exception):
    """A function took too long."""


def rows(words: Sequence[str]) -> Iterator[Row]:
    """Name, function and operands of each row; the first operand changes from round to round."""
    for name, function, operands in _table():
        if not words or any(word in name for word in words):
            yield name, function, operands


def _table() -> Iterator[Row]:
    import jax
    import jax.numpy as jnp

    floats, ints = jnp.linspace(0.1, 0.9, 8), jnp.arange(8)
    matrix = jnp.eye(3) * 2 + jnp.arange(9.0).reshape(3, 3) / 10
    waves, rotation = jnp.exp(1j * floats) * 2, matrix + 1j * matrix.T
    symmetric, vector = matrix @ matrix.T, jnp.arange(1.0, 4.0)
    kinds = {
        "f8": (floats,),
        "f3x3": (matrix,),
        "f8, f8": (floats, floats + 0.05),
        "i8": (ints,),
        "i8, i8": (ints, ints + 1),
        "f3x3, f3x3": (matrix, matrix),
        "c8": (waves,),
        "c8, c8": (waves, waves + 0.5),
        "c3x3, c3x3": (rotation, rotation),
    }
    matrices = {
        "f3x3": (symmetric,),
        "f3x3, f3": (symmetric, vector),
        "f3x3, f3x3": (symmetric, matrix),
        "c3x3": (rotation @ rotation.conj().T,),
    }
    spaces: list[tuple[str, Any, dict[str, tuple[Any, ...]]]] = [
        ("jnp", jnp, kinds),
        ("nn", jax.nn, kinds),
        ("special", jax.scipy.special, kinds),
        ("lax", jax.lax, kinds),
        ("linalg", jnp.linalg, matrices),
        ("scipy.linalg", jax.scipy.linalg, matrices),
        ("fft", jnp.fft, {"f8": (floats,), "f4x4": (jnp.arange(16.0).reshape(4, 4),)}),
    ]
    for space, module, given in spaces:
        for name in _functions(module):
            for kind, operands in given.items():
                yield f"{space}.{name}({kind})", getattr(module, name), operands
    key = jax.random.key(0)
    samples = {
        "": (),
        "f8": (floats,),
        "8": (8,),
        "(8,)": ((8,),),
        "f8, f8": (floats, floats),
        "(8,), 0, 9": ((8,), 0, 9),
        "1.5, (4,)": (1.5, (4,)),
    }
    for name in _functions(jax.random):
        for kind, others in samples.items():

            def draw(seed: Any, name: str = name, others: tuple[Any, ...] = others) -> Any:
                return getattr(jax.random, name)(jax.random.fold_in(key, seed.astype(int)), *others)

            yield f"random.{name}(key{', ' * bool(kind)}{kind})", draw, (jnp.float32(0),)


def _functions(module: Any) -> list[str]:
    named = [(name, getattr(module, name)) for name in sorted(dir(module)) if not name.startswith("_")]
    return [name for name, value in named if callable(value) and not isinstance(value, type)]


def seconds_per_round(function: Function, operands: tuple[Any, ...], mapped: bool) -> float:
    """The processor's time of a round, the least of three runs. Raises what the function raises."""
    import jax
    import jax.numpy as jnp

    def total(result: Any) -> Any:
        return sum(jnp.sum(jnp.real(x).astype(jnp.float32)) for x in jax.tree.leaves(result))

    def once(shift: Any) -> Any:
        first, *others = operands
        return total(function(first + shift.astype(first.dtype), *others))

    def step(i: Any, carry: Any) -> Any:
        found = jnp.sum(jax.vmap(once)(carry + jnp.arange(3.0))) if mapped else once(carry)
        return carry + 0.0 * found

    loop = jax.jit(lambda carry: jax.lax.fori_loop(0, ROUNDS, step, carry))
    start = jnp.float32(0)
    jax.block_until_ready(loop(start))
    times: list[float] = []
    for _ in range(3):
        begin = time.process_time()
        jax.block_until_ready(loop(start))
        times.append(time.process_time() - begin)
    return min(times) / ROUNDS


def child(mapped: bool, words: Sequence[str]) -> dict[str, float | str]:
    """Per row the seconds of a round, or the name of the error."""

    def overdue(*_: object) -> None:
        raise Overdue

    signal.signal(signal.SIGALRM, overdue)
    found: dict[str, float | str] = {}
    for name, function, operands in rows(words):
        signal.alarm(LIMIT)
        try:
            found[name] = seconds_per_round(function, operands, mapped)
        except Exception as error:  # many functions do not take these operands
            found[name] = type(error).__name__
        finally:
            signal.alarm(0)
    return found


def main() -> None:
    """Run both libraries and print what is slower here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--under-vmap", action="store_true", help="three of each at a time")
    parser.add_argument("--least", type=float, default=2.0, metavar="RATIO")
    parser.add_argument("--child", choices=("shardwise", "jax"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "shardwise":
        import shardwise.alias

        shardwise.alias.install()
    if options.child:
        print(json.dumps(child(options.under_vmap, options.words)))
        return
    words = [*(["--under-vmap"] if options.under_vmap else []), *options.words]
    ours, theirs = (answer(__file__, library, *words, devices=1, limit=1800) for library in ("shardwise", "jax"))
    if ours is None or theirs is None:
        sys.exit("a library did not finish: choose fewer rows by WORDs")
    timed = [(n, ours[n], t) for n, t in theirs.items() if isinstance(t, float) and isinstance(ours.get(n), float)]
    slower = sorted(((o / t, n, o, t) for n, o, t in timed if o > options.least * t and o > 1e-6), reverse=True)
    for ratio, name, own, other in slower:
        print(f"{name:44} {own * 1e6:8.1f} us / {other * 1e6:7.2f} us ({ratio:.0f} times as long)")
    print(
        f"{len(slower)} of {len(timed)} rows take more than {options.least:g} times as long as JAX's and more than 1 us a round"
    )


if __name__ == "__main__":
    main()
