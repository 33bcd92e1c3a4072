"""Documented names at the places where JAX defines them: `jax._src.sharding.Sharding` is `jax.sharding.Sharding`.

In: the name of a module below `_src` that has no file here. Out: a module whose names are those of the documented modules that export
them; None for a module that defines nothing documented.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

# Per module below `_src`, the documented modules, below ours, that export its names; "" is the root.
_HOMES: dict[str, tuple[str, ...]] = {
    "ad_checkpoint": ("ad_checkpoint",),
    "api": ("",),
    "array": ("", "_src.lib._jax", "_src.process_parts"),
    "basearray": ("",),
    "callback": ("", "experimental"),
    "config": ("", "_src.transfer_scopes"),
    "custom_api_util": ("_src.custom_decorators",),
    "custom_batching": ("custom_batching",),
    "custom_derivatives": ("custom_derivatives", ""),
    "custom_partitioning": ("experimental.custom_partitioning",),
    "debugging": ("debug",),
    "dlpack": ("dlpack",),
    "environment_info": ("",),
    "errors": ("errors",),
    "export": (),
    "image": (),
    "image.scale": ("image",),
    "indexing": ("experimental.pallas",),
    "layout": ("experimental.layout",),
    "mesh_utils": ("experimental.mesh_utils",),
    "monitoring": ("monitoring",),
    "named_sharding": ("sharding",),
    "nn": (),
    "nn.functions": ("nn",),
    "nn.initializers": ("nn.initializers",),
    "ops": (),
    "ops.scatter": ("ops",),
    "partition_spec": ("sharding",),
    "pjit": ("", "experimental.pjit", "sharding", "lax", "extend.core.primitives"),
    "pmap": ("",),
    "profiler": ("profiler",),
    "public_test_util": ("test_util",),
    "random": ("random",),
    "random.threefry2x32": ("_src.prng",),
    "ref": ("ref",),
    "scipy": (),
    "scipy.linalg": ("scipy.linalg",),
    "scipy.ndimage": ("scipy.ndimage",),
    "scipy.signal": ("scipy.signal",),
    "scipy.special": ("scipy.special",),
    "scipy.stats": ("scipy.stats",),
    "shard_map": ("", "experimental.shard_map"),
    "sharding": ("sharding",),
    "sharding_impls": ("sharding", "", "_src.process_parts"),
    "stages": ("stages",),
    "tree": ("tree",),
}


class _Home(ModuleType):
    """A module of names that documented modules export."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, f"`{path}`: documented names, by the module that defines them in JAX.")
        self.__path__ = []  # modules below it are found by name alone
        self._path = path

    def __getattr__(self, name: str) -> Any:
        below = home(f"{self._path}.{name}")
        if below is not None:
            return below
        if not name.startswith("_"):
            for exporter in _HOMES[self._path]:
                module = importlib.import_module(f"shardwise.{exporter}".rstrip("."))
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(
            f"module {self.__name__!r} has no attribute {name!r}: JAX's inside is not here; use the documented names."
        )

    def __dir__(self) -> list[str]:
        return sorted(
            {n for m in _HOMES[self._path] for n in dir(importlib.import_module(f"shardwise.{m}".rstrip(".")))}
        )


def home(path: str) -> ModuleType | None:
    """The module at this path below `_src`, or None."""
    if path not in _HOMES:
        return None
    name = f"{__package__}.{path}"
    return sys.modules.get(name) or sys.modules.setdefault(name, _Home(name, path))
