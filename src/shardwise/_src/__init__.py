"""`shardwise._src`: the few names below JAX's documented ones that widespread libraries import anyway.

In: an import of such a name. Out: our own object for it, where there is one. Documented names can also be imported from the modules in
which JAX defines them (`homes`). Nothing else is here, and no code of ours uses it.
"""

import importlib as _importlib
from typing import Any as _Any

from shardwise._src.homes import home as _home
from shardwise.base.refused import refuse_below as _refuse_below

_MODULES = (
    "ad_util",
    "api_util",
    "checkify",
    "compiler",
    "core",
    "dispatch",
    "distributed",
    "dtypes",
    "flatten_util",
    "interpreters",
    "lax",
    "lib",
    "linear_util",
    "literals",
    "mesh",
    "numpy",
    "prng",
    "state",
    "traceback_util",
    "tree_util",
    "typing",
    "util",
    "xla_bridge",
)

# Models import it beside other kinds of attention, and use it where there is a GPU.
_refuse_below(__name__, ("cudnn", "cudnn.fused_attention_stablehlo"))


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    found = _home(name)
    if found is not None:
        return found
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: JAX's inside is not here; use the documented names."
    )


def __dir__() -> list[str]:
    return list(_MODULES)
