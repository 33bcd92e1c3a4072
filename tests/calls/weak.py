"""Dtypes and weak types of what every public function gives for weakly typed arrays, beside strong ones and scalars.

`promotion` asks about operands without dims and about all dtypes; here the functions come from the namespaces, and operands have
dims. JAX's answers are kept in ``weak.json.xz``, for both eras. ``python -m tests.calls.weak jax FILE`` writes those of the
JAX of this interpreter; ``keep SEED LATEST`` puts the two files together. What JAX 0.10 says of slopes lies in ``weak_slopes.json.xz``;
``slopes`` writes it anew.
"""

from __future__ import annotations

import importlib
import json
import lzma
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).with_name("weak.json.xz")
SLOPES = Path(__file__).with_name("weak_slopes.json.xz")

MODULES = {
    "jnp": "numpy", "lax": "lax", "nn": "nn", "linalg": "numpy.linalg", "fft": "numpy.fft", "special": "scipy.special",
    "slinalg": "scipy.linalg", "signal": "scipy.signal", "norm": "scipy.stats.norm",
}  # fmt: skip
# Those that call functions, touch files, or make arrays of no array; gcd of what is not whole loops for long.
OTHERS = """
    save savez load fromfile printoptions set_printoptions fromfunction frompyfunc vectorize from_dlpack get_printoptions custom_root
    while_loop scan cond switch map fori_loop associative_scan custom_linear_solve infeed outfeed rng_uniform create_token full empty
    custom_jvp custom_vjp rng_bit_generator composite ragged_all_to_all platform_dependent
"""
NUMBERS = {"f": 2.5, "i": 2, "b": True, "c": 2 + 1j}
STRONG = {"f": "float32", "i": "int32", "b": "bool", "c": "complex64"}
NARROW = {"f": "bfloat16", "i": "int8", "b": "bool", "c": "complex64"}
# a, m, s: weak arrays of 1, 2 and 0 dims; S and N: strong ones, of the same and of a narrow dtype; i: weak whole numbers; l: a list.
CALLS = "s a m aa aS Sa aN Np a1 ai mm Saa aaS sss la laS".split()
SLOPE_CALLS = ["s", "ss", "a"]  # whose slopes are asked for


def operands(jax: Any, letter: str, call: str) -> tuple[Any, ...]:
    """The operands that `call` names, of numbers of one kind."""
    jnp, number = jax.numpy, NUMBERS[letter]
    made = {
        "s": lambda: jnp.asarray(number),
        "a": lambda: jnp.full((3,), number),
        "m": lambda: jnp.full((3, 3), number),
        "S": lambda: jnp.asarray(np.full((3,), number).astype(STRONG[letter])),
        "N": lambda: jnp.full((3,), number).astype(NARROW[letter]),
        "i": lambda: jnp.full((3,), 1),
        "p": lambda: number,
        "1": lambda: 1,
    }
    if call.startswith("l"):
        return ([made[c]() for c in call[1:]],)
    return tuple(made[c]() for c in call)


def questions(library: str) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Each question's name, the function, and its operands."""
    jax = importlib.import_module(library)
    given = {(letter, call): operands(jax, letter, call) for letter in NUMBERS for call in CALLS}
    for short, path in MODULES.items():
        module = importlib.import_module(f"{library}.{path}")
        for name in sorted(n for n in dir(module) if not n.startswith("_") and n not in OTHERS.split()):
            function = getattr(module, name)
            if callable(function) and not isinstance(function, type):
                for (letter, call), args in given.items():
                    yield f"{short}.{name} {letter} {call}", function, args


def answer(jax: Any, function: Any, args: tuple[Any, ...]) -> str | None:
    """The dtypes of the results, a star at weak ones; None where the call raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            types = jax.make_jaxpr(lambda: function(*args))().out_avals
    except Exception:
        return None
    return " ".join(f"{t.dtype}{'*' if t.weak_type else ''}" for t in types)


def answers(library: str) -> dict[str, str]:
    """What the library says to all questions that it has an answer to."""
    jax = importlib.import_module(library)
    found = {name: answer(jax, function, args) for name, function, args in questions(library)}
    return {name: text for name, text in found.items() if text}


def slopes(library: str, share: int = 1) -> Iterator[tuple[str, str | None]]:
    """The types of the tangents that forward mode gives, and of the cotangents that reverse mode gives; one of so many questions."""
    jax = importlib.import_module(library)
    wanted = [q for q in questions(library) if q[0].split()[1] == "f" and q[0].split()[2] in SLOPE_CALLS]
    for name, function, args in wanted[::share]:

        def leaves(*xs: Any, function: Any = function) -> Any:
            return jax.tree.leaves(function(*xs))

        def backward(*xs: Any, leaves: Any = leaves) -> Any:
            out, pull = jax.vjp(leaves, *xs)
            return pull(out)

        yield f"{name} forward", answer(jax, lambda *xs, f=leaves: jax.jvp(f, xs, xs)[1], args)
        yield f"{name} backward", answer(jax, backward, args)


def recorded(dialect: str) -> dict[str, str]:
    """JAX's answers in that dialect's era."""
    return json.loads(lzma.decompress(RECORD.read_bytes()))[dialect]


def recorded_slopes() -> dict[str, str]:
    """What JAX 0.10 says of slopes."""
    return json.loads(lzma.decompress(SLOPES.read_bytes()))


def main(command: str, first: str = "", second: str = "") -> None:
    """Write what one library says, or put two such files together."""
    if command == "slopes":
        found = {name: text for name, text in slopes("jax") if text}
        SLOPES.write_bytes(lzma.compress(json.dumps(found, sort_keys=True).encode(), preset=9))
    elif command == "keep":
        both = {"seed": json.loads(Path(first).read_text()), "latest": json.loads(Path(second).read_text())}
        RECORD.write_bytes(lzma.compress(json.dumps(both, sort_keys=True).encode(), preset=9))
    else:
        Path(first).write_text(json.dumps(answers(command), sort_keys=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
