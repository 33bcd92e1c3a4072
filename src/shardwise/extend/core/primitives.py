"""`shardwise.extend.core.primitives`: the library's ops as Primitives: ``sin_p`` is that of ``sin``."""

from collections.abc import Sequence as _Sequence
from typing import TYPE_CHECKING, Any

from shardwise.base.gone import no_attribute as _no_attribute
from shardwise.base.listing import listing as _listing
from shardwise.lax import linalg_primitives as _linalg_names
from shardwise.lax import primitives as _lax_names
from shardwise.transforms.programs.primitives import CALLS as _CALLS
from shardwise.transforms.programs.primitives import Primitive, named_primitive

# Calls of functions that are neither compiled nor differentiated by rules of their own: interpreters compare with them. `bind` runs
# the function where it stands, so programs of ours have no equation of theirs.
call_p, closed_call_p = Primitive("call"), Primitive("closed_call")
call_p.multiple_results = closed_call_p.multiple_results = True


def _run(functions: _Sequence[Any], args: _Sequence[Any]) -> Any:
    return functions[0].call_wrapped(*args)


_CALLS["call"] = _CALLS["closed_call"] = _run


# Names that `__getattr__` makes from ops, for checkers and `dir`: the primitives that `lax` names, and these.
add_jaxvals_p: Primitive
custom_jvp_call_p: Primitive
custom_lin_p: Primitive
custom_vjp_call_p: Primitive
jit_p: Primitive
name_p: Primitive
random_bits_p: Primitive
random_fold_in_p: Primitive
random_seed_p: Primitive
random_split_p: Primitive
remat_p: Primitive

if TYPE_CHECKING:  # names other than these are mistakes
    from shardwise.lax.linalg_primitives import *  # noqa: F403
    from shardwise.lax.primitives import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        primitive = named_primitive(name)
        if primitive is None:
            raise _no_attribute(__name__, name)
        return primitive


def __dir__() -> list[str]:
    return sorted({*_listing(__name__)(), *_lax_names.__annotations__, *_linalg_names.__annotations__})
