"""A process that runs program texts, with shardwise or the real JAX as `jax`, and reports what came out.

Started as `python worker.py shardwise|jax` with the number of devices in the environment. Requests and answers are
pickles behind their length in 8 bytes, on the standard streams. A program leaves what is to be compared in `result`;
the answer describes its leaves in plain Python and NumPy, so that neither side needs the other's classes.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import sys
import warnings
from typing import Any

import numpy as np

PREAMBLE = """
import functools, math, operator
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

def data(shape, dtype="float32", seed=0):
    # Quarters of small integers: sums and products of a few are exact in float32, in whatever order they are taken.
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    whole = rng.integers(0 if dtype.startswith("u") else -9, 10, shape)
    return whole.astype(dtype) if "int" in dtype else jnp.dtype(dtype).type(0.25) * whole.astype(jnp.dtype(dtype))

def special(shape, dtype="float32", seed=0):
    # The same with some zeros of either sign, infinities, NaNs, equal numbers and the least and largest integers.
    x, rng = np.array(data(shape, dtype, seed)), np.random.default_rng(seed)
    dtype = jnp.dtype(dtype)
    least = (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max) if "int" in dtype.name else (-0.0, np.inf, -np.inf, np.nan)
    chosen = np.array([0, 1, *least], dtype)
    return np.where(rng.random(shape) < 0.25, rng.choice(chosen, shape), x).astype(dtype)

def mesh_of(shape, names, axis_type="Auto"):
    devices = np.array(jax.devices()[:math.prod(shape)]).reshape(shape)
    return Mesh(devices, names, axis_types=(getattr(AxisType, axis_type),) * len(names))
"""


def describe(jax: Any, x: Any) -> Any:
    """`x` in plain terms; containers stay containers."""
    if isinstance(x, dict):
        return {key: describe(jax, value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [describe(jax, value) for value in x]
    if isinstance(x, jax.Array):
        return _describe_array(jax, x)
    if isinstance(x, np.ndarray):
        return {"kind": "ndarray", "value": x, "dtype": str(x.dtype)}
    if x is None or isinstance(x, (bool, int, float, complex, str, bytes)):
        return x
    return {"kind": type(x).__name__, "text": str(x)}


def _describe_array(jax: Any, x: Any) -> dict[str, Any]:
    data = jax.random.key_data(x) if str(x.dtype).startswith("key<") else x
    indices = x.sharding.devices_indices_map(x.shape)
    return {
        "kind": "Array",
        "value": np.asarray(data),
        "dtype": str(x.dtype),
        "weak_type": bool(getattr(x, "weak_type", False)),
        "type": str(jax.typeof(x)),
        "committed": bool(x.committed),
        "spec": str(getattr(x.sharding, "spec", None)),
        "indices": {
            device.id: tuple(part.indices(size)[:2] for part, size in zip(index, x.shape, strict=True))
            for device, index in indices.items()
        },
    }


def run(jax: Any, source: str) -> dict[str, Any]:
    """Execute one program; the answer has either `result` or `error`, and always what was printed and warned."""
    printed = io.StringIO()
    answer: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        namespace: dict[str, Any] = {"__name__": "program"}
        try:
            exec(compile(PREAMBLE + source, "<program>", "exec"), namespace)
            answer["result"] = describe(jax, namespace.get("result"))
        except Exception as error:
            answer["error"] = {
                "classes": [base.__name__ for base in type(error).__mro__],
                "builtin": next(base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"),
                "message": str(error),
            }
    answer["printed"] = printed.getvalue()
    answer["warnings"] = [warning.category.__name__ for warning in caught]
    return answer


def main() -> None:
    """Serve until the other side closes the pipe."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print by themselves must not get between the answers
    if sys.argv[1] == "shardwise":
        from shardwise import alias

        jax = alias.install()
    else:
        import jax
    gc.collect()
    gc.freeze()  # modules stay
    gc.set_threshold(5000, 10, 10)
    while head := requests.read(8):
        source = pickle.loads(requests.read(int.from_bytes(head, "little")))
        answer = pickle.dumps(run(jax, source))
        answers.write(len(answer).to_bytes(8, "little") + answer)
        answers.flush()


if __name__ == "__main__":
    main()
