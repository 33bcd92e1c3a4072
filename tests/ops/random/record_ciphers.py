"""What `test_counter_ciphers.py` compares with: keys and bits of JAX, and their recording.

``python tests/ops/random/record_ciphers.py`` writes `cipher_bits.json` anew; it needs JAX 0.10.2.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parent / "cipher_bits.json"
IMPLS = ("threefry4x32", "philox2x32", "philox4x32")


def drawn(lib: Any, impl: str) -> dict[str, Any]:
    """The words of keys of a generator, and bits that they give, as lists."""
    random = lib.random
    key = random.key(7, impl=impl)
    made = {
        "key": random.key_data(key),
        "negative seed": random.key_data(random.key(-3, impl=impl)),
        "split": random.key_data(random.split(key, (2, 2))),
        "fold_in": random.key_data(random.fold_in(key, 3)),
        "uint8": random.bits(key, (5,), "uint8"),
        "uint16": random.bits(key, (), "uint16"),
        "uint32": random.bits(key, (2, 3)),
        "none": random.bits(key, (0, 2)),
    }
    with lib.enable_x64(True):
        made["uint64"] = random.bits(key, (3,), "uint64")
        made["wide seed"] = random.key_data(random.key(2**40 + 5, impl=impl))
    return {name: np.asarray(value).tolist() for name, value in made.items()}


if __name__ == "__main__":
    import jax

    RECORD.write_text(json.dumps({impl: drawn(jax, impl) for impl in IMPLS}, indent=1) + "\n")
