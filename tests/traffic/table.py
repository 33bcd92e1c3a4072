"""The table of programs: a name, the axes of a mesh, and a function that makes the program for an `Api`."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np


class Api:
    """The modules of an implementation, and layouts on a mesh of its devices."""

    def __init__(self, module: str, axes: dict[str, int], explicit: bool) -> None:
        self.jax: Any = import_module(module)
        self.jnp: Any = import_module(f"{module}.numpy")
        self.lax: Any = self.jax.lax
        sharding: Any = import_module(f"{module}.sharding")
        self.P: Any = sharding.PartitionSpec
        self.NamedSharding: Any = sharding.NamedSharding
        devices = np.array(self.jax.devices()[: math.prod(axes.values())]).reshape(tuple(axes.values()))
        kind = sharding.AxisType.Explicit if explicit else sharding.AxisType.Auto
        self.mesh: Any = sharding.Mesh(devices, tuple(axes), axis_types=(kind,) * len(axes))

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
    """A program over a mesh of these axes, explicit ones or automatic ones."""

    axes: dict[str, int]
    make: Maker
    explicit: bool = False

    def compiled(self, module: str) -> Any:
        """The program compiled by `module`, whose names are JAX's."""
        api = Api(module, self.axes, self.explicit)
        f, args, outs = self.make(api)
        layouts = {} if outs is None else {"out_shardings": outs}
        with api.jax.set_mesh(api.mesh) if self.explicit else nullcontext():
            return api.jax.jit(f, **layouts).lower(*args).compile()

    def results(self, module: str) -> list[Any]:
        """What the program compiled by `module` returns for numbers drawn for its arguments: integers are 0 to 7."""
        api = Api(module, self.axes, self.explicit)
        _, args, _ = self.make(api)
        rng = np.random.default_rng(0)

        def drawn(a: Any) -> Any:
            numbers = (
                rng.integers(0, 8, a.shape) if np.dtype(a.dtype).kind in "iu" else rng.standard_normal(a.shape) / 8
            )
            return api.jax.device_put(np.asarray(numbers).astype(a.dtype), a.sharding)

        outs = self.compiled(module)(*api.jax.tree.map(drawn, args))
        return [np.asarray(out) for out in api.jax.tree.leaves(outs)]


TABLE: dict[str, Entry] = {}


def add(name: str, axes: dict[str, int], make: Maker, *, explicit: bool = False) -> None:
    """Add a program to the table."""
    assert name not in TABLE, name
    TABLE[name] = Entry(axes, make, explicit)


def program(*, explicit: bool = False, **axes: int) -> Callable[[Maker], Maker]:
    """Add the decorated function's program to the table, over a mesh of these axes."""

    def added(make: Maker) -> Maker:
        add(make.__name__, axes, make, explicit=explicit)
        return make

    return added


def add_function(name: str, f: Any, *args: Any, out: Any = None, **axes: int) -> None:
    """A function of arguments ``(shape, spec)`` or ``(shape, spec, dtype)``; `out`: the spec of the result, a list of them, or None."""

    def make(e: Any) -> Any:
        given = [e.arg(shape, *spec, dtype=kind[0] if kind else "float32") for shape, spec, *kind in args]
        placed = [e.at(*spec) for spec in out] if isinstance(out, list) else None if out is None else e.at(*out)
        return (lambda *values: f(e, *values)), tuple(given), placed

    add(name, axes, make)
