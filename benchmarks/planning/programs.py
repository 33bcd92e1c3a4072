"""Sharded programs that a folder holds, as `plan.py --programs FOLDER` names it.

The folder's module `programs` has a table ``PROGRAMS``: of each program a `topology` (``v5e:4x4``), a `mesh`, its number of `devices`, and
`build(env)`, which gives a function, the types of its arguments and keywords of jit for an `Env`: the modules of an implementation, and a
mesh. Its module `hlo` reads the texts of XLA's programs: only `ask_xla.py` needs it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Compiled:
    """A program compiled for the machine that it was written for: nothing of it is run."""

    name: str
    machine: Any
    executable: Any


def load(folder: Path, name: str) -> Any:
    """A module of the folder."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


@cache
def compiled(folder: Path) -> tuple[Compiled, ...]:
    """All programs of the folder."""
    return tuple(_compiled(folder))


def _compiled(folder: Path) -> Iterator[Compiled]:
    import shardwise as jax
    import shardwise.numpy as jnp
    from shardwise import lax, sharding
    from shardwise.plan import on

    module = load(folder, "programs")
    for name, entry in module.PROGRAMS.items():
        with on(entry.topology.replace(":", "-")) as run:
            axes, sizes = zip(*entry.mesh, strict=True)
            mesh = sharding.Mesh(np.array(jax.devices()[: entry.devices]).reshape(sizes), axes)
            env = module.Env(jax, jnp, lax, sharding.PartitionSpec, sharding.NamedSharding, mesh)
            function, arguments, keywords = entry.build(env)
            executable: Any = jax.jit(function, **keywords).lower(*arguments)._entry.executable
            yield Compiled(name, run.machine, executable)
