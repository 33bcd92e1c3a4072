"""The table of programs: a name, the axes of a mesh, and a function that makes the program for an `Api`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np


class Api:
    """The modules of an implementation, and layouts on a mesh of its devices."""

    def __init__(self, module: str, axes: dict[str, int]) -> None:
        self.jax: Any = import_module(module)
        self.jnp: Any = import_module(f"{module}.numpy")
        self.lax: Any = self.jax.lax
        sharding: Any = import_module(f"{module}.sharding")
        self.P: Any = sharding.PartitionSpec
        self.NamedSharding: Any = sharding.NamedSharding
        devices = np.array(self.jax.devices()[:8]).reshape(tuple(axes.values()))
        self.mesh: Any = sharding.Mesh(devices, tuple(axes))

    def at(self, *spec: Any) -> Any:
        """The layout of this spec."""
        return self.NamedSharding(self.mesh, self.P(*spec))

    def arg(self, shape: tuple[int, ...], *spec: Any, dtype: str = "float32") -> Any:
        """An argument of this type and layout."""
        return self.jax.ShapeDtypeStruct(shape, self.jnp.dtype(dtype), sharding=self.at(*spec))

    def like(self, tree: Any) -> Any:
        """The layouts of arguments."""
        return self.jax.tree.map(lambda a: a.sharding, tree)

    def pin(self, x: Any, *spec: Any) -> Any:
        """A value in this layout."""
        return self.lax.with_sharding_constraint(x, self.at(*spec))


Made = tuple[
    Callable[..., Any], tuple[Any, ...], Any
]  # function, arguments, layouts of the results (None: as they come)
Maker = Callable[[Api], Made]


@dataclass(frozen=True)
class Entry:
    """A program over a mesh of these axes."""

    axes: dict[str, int]
    make: Maker

    def compiled(self, module: str) -> Any:
        """The program compiled by `module`, whose names are JAX's."""
        api = Api(module, self.axes)
        f, args, outs = self.make(api)
        layouts = {} if outs is None else {"out_shardings": outs}
        return api.jax.jit(f, **layouts).lower(*args).compile()


TABLE: dict[str, Entry] = {}


def add(name: str, axes: dict[str, int], make: Maker) -> None:
    """Add a program to the table."""
    assert name not in TABLE, name
    TABLE[name] = Entry(axes, make)


def program(**axes: int) -> Callable[[Maker], Maker]:
    """Add the decorated function's program to the table, over a mesh of these axes."""

    def added(make: Maker) -> Maker:
        add(make.__name__, axes, make)
        return make

    return added
