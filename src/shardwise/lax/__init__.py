"""`shardwise.lax`: the strict layer of array functions (equal dtypes and ranks) and the collectives, named as in jax.lax."""

import importlib as _importlib
import typing as _typing

from shardwise.base.listing import package_listing as _package_listing
from shardwise.lax import strict as _strict
from shardwise.lax.adaptive import *  # noqa: F403

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.lax import linalg as linalg
    from shardwise.lax.primitives import *  # noqa: F403
    from shardwise.transforms.derivatives.implicit import custom_linear_solve as custom_linear_solve
    from shardwise.transforms.derivatives.implicit import custom_root as custom_root

for _name, _operands in _strict.OPERANDS.items():
    globals()[_name] = _strict.strict(globals()[_name], _operands)

# Ops have their JAX names as Primitives (see `__getattr__`), as equations and policies show them.
for _name in [n for n in globals() if n.endswith("_p")]:
    del globals()[_name]

_ABSENT = {
    "infeed": "give values as arguments, or fetch them with io_callback",
    "outfeed": "return values, or send them with io_callback",
    "psend": "use ppermute",
    "precv": "use ppermute",
}


if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name == "linalg":
            return _importlib.import_module("shardwise.lax.linalg")
        if name in ("custom_linear_solve", "custom_root"):
            return getattr(_importlib.import_module("shardwise.transforms.derivatives.implicit"), name)
        if name in _ABSENT:
            raise AttributeError(f"module 'shardwise.lax' has no attribute {name!r}: {_ABSENT[name]}.")
        if name.endswith("_p"):
            primitive = _importlib.import_module("shardwise.transforms.programs.primitives").named_primitive(name)
            if primitive is not None:
                return primitive
        raise AttributeError(f"module 'shardwise.lax' has no attribute {name!r}")


__dir__ = _package_listing(__name__, "custom_linear_solve", "custom_root", "linalg")
