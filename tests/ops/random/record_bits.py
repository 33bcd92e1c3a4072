"""What `test_bit_generators.py` compares with: bits of XLA on a CPU, and their recording with JAX.

``python tests/ops/random/record_bits.py`` writes `xla_bits.json` anew; it needs JAX.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parent / "xla_bits.json"
STATE = np.array([1, 2, 3, 4], np.uint32)
LAST = np.array([7, 8, 2**32 - 1, 2**32 - 1], np.uint32)  # the counter overflows
WIDE = np.array([2**40 + 1, 5], np.uint64)
ALGORITHMS = {"RNG_THREE_FRY": 1, "RNG_PHILOX": 2}
SHAPES = [(), (0,), (3, 0), (1,), (3,), (8,), (17,), (2, 3), (3, 4), (3, 3), (5, 3), (3, 5), (3, 2, 5), (1, 7)]
FEW_SHAPES = [(), (5,), (3, 4)]

# state, shape, dtype
DRAWS = [
    *[(STATE, shape, "uint32") for shape in SHAPES],
    *itertools.product((LAST, WIDE), FEW_SHAPES, ("uint32",)),
    *itertools.product((STATE,), FEW_SHAPES, ("uint8", "uint16", "uint64")),
    *itertools.product((LAST, WIDE), ((5,),), ("uint64",)),
]
CASES = {
    f"{algorithm} {state.tolist()} {shape} {dtype}": (algorithm, state, shape, dtype)
    for algorithm, (state, shape, dtype) in itertools.product(ALGORITHMS, DRAWS)
}


def drawn(lax: Any, algorithm: str, state: Any, shape: tuple[int, ...], dtype: str) -> list[Any]:
    """The state behind the draw, and the bits."""
    return [np.asarray(x).tolist() for x in lax.rng_bit_generator(state, shape, np.dtype(dtype), ALGORITHMS[algorithm])]


if __name__ == "__main__":
    import jax

    with jax.enable_x64(True):
        rows = [f"{json.dumps(name)}: {json.dumps(drawn(jax.lax, *case))}" for name, case in CASES.items()]
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")
