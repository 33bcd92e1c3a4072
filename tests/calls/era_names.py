"""Record of the public names that only one era of JAX has: `python tests/calls/era_names.py OLD_PYTHON NEW_PYTHON` writes the table.

Each Python has one release of JAX. Names are looked at in the modules that JAX documents; a name belongs to one era if the other
release's module has no such attribute, a keyword if the function takes it in one release only.
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[2] / "src/shardwise/cli/era_names.py"
MODULES = (
    "jax jax.ad_checkpoint jax.core jax.custom_batching jax.custom_derivatives jax.debug jax.distributed jax.dtypes jax.errors "
    "jax.experimental jax.experimental.layout jax.experimental.mesh_utils jax.experimental.multihost_utils jax.experimental.pjit "
    "jax.experimental.shard jax.experimental.shard_map jax.lax jax.memory jax.nn jax.nn.initializers jax.numpy "
    "jax.numpy.fft jax.numpy.linalg jax.profiler jax.random jax.ref jax.scipy.linalg jax.scipy.special jax.scipy.stats "
    "jax.sharding jax.stages jax.tree jax.tree_util jax.typing"
).split()
INTERNAL = {"jax.experimental.shard_map"}  # of whose names only those of its __all__ count: one


def _own(names: dict[str, Any]) -> dict[str, list[str]]:
    """The names of this release, or of `names` those that it has, each with its keywords; none for what is no plain function."""
    found: dict[str, list[str]] = {}
    for path in MODULES:
        try:
            module = importlib.import_module(path)
        except ImportError:
            continue
        found[path] = []
        own = ["shard_map"] if path in INTERNAL else dir(module)
        wanted = {name.rpartition(".")[2] for name in names if name.rpartition(".")[0] == path}
        for name in sorted({*own, *wanted}):
            value = None if name.startswith("_") else getattr(module, name, None)
            if value is None or (inspect.ismodule(value) and f"{path}.{name}" not in names):
                continue
            found[f"{path}.{name}"] = _keywords(value)
    return found


def _keywords(value: Any) -> list[str]:
    if not callable(value):
        return []
    try:
        parameters = inspect.signature(value).parameters.values()
    except (ValueError, TypeError):
        return []
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return []
    return sorted(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY)


def _ask(python: str, names: dict[str, Any]) -> dict[str, list[str]]:
    done = subprocess.run([python, __file__, "-"], input=json.dumps(names), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def only_in_one(old_python: str, new_python: str) -> tuple[list[str], list[str]]:
    """The names and keywords, as ``path(keyword=)``, of each era alone."""
    first, second = _ask(old_python, {}), _ask(new_python, {})
    old, new = _ask(old_python, second), _ask(new_python, first)

    def beyond(one: dict[str, list[str]], other: dict[str, list[str]]) -> list[str]:
        names = [name for name in one if name not in other and not _inside_of_another(name, one, other)]
        shared = [name for name in one if name in other and one[name] and other[name]]
        return sorted(names) + sorted(f"{name}({k}=)" for name in shared for k in set(one[name]) - set(other[name]))

    return beyond(old, new), beyond(new, old)


def _inside_of_another(name: str, one: dict[str, list[str]], other: dict[str, list[str]]) -> bool:
    """Whether its module is itself a module that the other era lacks."""
    parent = name.rpartition(".")[0]
    return parent in MODULES and parent not in other and parent in one


def text(old: list[str], new: list[str]) -> str:
    """The table as a module."""
    out = (
        '"""The public names that only one era of JAX has; `tests/calls/era_names.py` writes this file."""\n'
        "\nfrom __future__ import annotations\n"
    )
    for title, names in (("ONLY_BEFORE", old), ("ONLY_TODAY", new)):
        lines = "".join(f"    {name}\n" for name in names)
        out += f'\n{title} = frozenset(\n    """\n{lines}    """.split()\n)\n'
    return out


if __name__ == "__main__":
    if sys.argv[1] == "-":
        warnings.simplefilter("ignore")
        print(json.dumps(_own(json.load(sys.stdin))))
    else:
        TABLE.write_text(text(*only_in_one(*sys.argv[1:3])), encoding="utf-8")
