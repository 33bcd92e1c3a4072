"""Ask the JAX of this interpreter: a process of its own, for the two eras cannot share one.

``python -m tests.special_points.ask IN OUT``: IN is JSON, a list of [expression, whether forwards, too, whether op by op]; OUT gets
what `store` writes.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.special_points import store, table
from tests.special_points.answers import answer


def asked(expression: str, forward: bool, eager: bool) -> dict[str, Any]:
    """JAX's answer, compiled as one program, or op by op: where XLA drops a product by zero, the two differ."""
    import jax

    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    return answer(jax, table.library("jax"), expression, plain if eager else jax.jit, forward=forward)


def main() -> None:
    """Answer all; an expression that this JAX cannot evaluate at all has the answer {'absent': the kind of error}."""
    warnings.simplefilter("ignore")
    path = Path(sys.argv[2])
    out: dict[str, dict[str, Any]] = store.read(path) if path.exists() else {}
    for number, (expression, forward, eager) in enumerate(json.loads(Path(sys.argv[1]).read_text())):
        if expression in out:
            continue
        print(expression, flush=True)
        try:
            out[expression] = asked(expression, forward, eager)
        except Exception as error:
            out[expression] = {"absent": type(error).__name__}
        if number % 50 == 49:
            store.write(path, out)
    store.write(path, out)


if __name__ == "__main__":
    main()
