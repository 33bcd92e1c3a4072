"""Run the cells of pages in this process, by whichever library `import jax` means, and write what became of each.

    python run_cells.py PAGES.json OUT.jsonl SECONDS

A page that takes more than SECONDS of processor time ends there: its remaining cells count as not run.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any


class Overdue(BaseException):
    """A page has had its time."""


def run_page(name: str, cells: list[str], folder: str, given: dict[str, Any], seconds: int) -> list[dict[str, Any]]:
    """Run cells in order in one namespace."""
    os.chdir(folder)
    module = ModuleType("__main__")  # functions that are pickled, and annotations, are looked up there
    sys.modules["__main__"] = module
    namespace = module.__dict__ | {"__file__": str(Path(folder) / Path(name).name)} | given
    module.__dict__.update(namespace)
    results: list[dict[str, Any]] = []
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        for number, source in enumerate(cells, start=1):
            results.append(run_cell(source, f"<{name}, cell {number}>", module.__dict__))
    except Overdue:
        results += [{"raised": "Overdue", "message": "", "printed": ""}] * (len(cells) - len(results))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return results


def run_cell(source: str, name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Run one cell; what it prints and what its last expression displays is its text."""
    out, raised, message, last = io.StringIO(), None, "", ""
    with contextlib.redirect_stdout(out):
        try:
            tree = ast.parse(source)
            shown = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec"), namespace)
            if isinstance(shown, ast.Expr):
                value = eval(compile(ast.Expression(shown.value), name, "eval"), namespace)
                if value is not None and not source.rstrip().endswith(";"):
                    print(repr(value))
        except Overdue:
            raise
        except BaseException as error:
            raised, message = type(error).__name__, str(error)[:2000]
            last = "".join(traceback.format_tb(error.__traceback__)[-3:])
    return {"raised": raised, "message": message, "printed": out.getvalue(), "at": last}


def main() -> None:
    """Run all pages of the first argument, a page's results a line of the second."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    pages = json.loads(Path(sys.argv[1]).read_text())
    seconds = int(sys.argv[3])

    def overdue(signum: int, frame: FrameType | None) -> None:
        raise Overdue

    signal.signal(signal.SIGPROF, overdue)
    with open(sys.argv[2], "w") as out:
        for page in pages:
            given = {"jax": jax, "jnp": jnp, "np": np, "lax": jax.lax} if page["given"] else {}
            results = run_page(page["name"], page["cells"], page["folder"], given, seconds)
            out.write(json.dumps({"name": page["name"], "cells": results}) + "\n")
            out.flush()
    os._exit(0)  # threads that a page has left behind


if __name__ == "__main__":
    main()
