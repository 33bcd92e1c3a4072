"""`shardwise.extend.core`: programs as values, for interpreters of them, and new primitives."""

import typing as _typing

import numpy as _np

from shardwise.base.doors import open_package as _open_package
from shardwise.base.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from shardwise.base.errors import JaxprTypeError as JaxprTypeError
from shardwise.core import DebugInfo as DebugInfo
from shardwise.core import Effect as Effect
from shardwise.core import Effects as Effects
from shardwise.core import concrete_or_error as concrete_or_error
from shardwise.core import gensym as gensym
from shardwise.core import no_effects as no_effects
from shardwise.core import primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype
from shardwise.core import valid_jaxtype as valid_jaxtype
from shardwise.ir import Array as _Array
from shardwise.ir import Literal as Literal
from shardwise.ir import ShapedArray as _ShapedArray
from shardwise.ir import Var as Var
from shardwise.lax.composite import Token as Token
from shardwise.transforms.interpreters.trace_state import TraceTag as TraceTag
from shardwise.transforms.interpreters.trace_state import axis_names as unsafe_get_axis_names_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.interpreters.trace_state import find_top_trace as find_top_trace
from shardwise.transforms.interpreters.trace_state import get_opaque_trace_state as get_opaque_trace_state
from shardwise.transforms.interpreters.trace_state import nonempty_axis_env as nonempty_axis_env_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.interpreters.trace_state import set_current_trace as set_current_trace
from shardwise.transforms.interpreters.trace_state import take_current_trace as take_current_trace
from shardwise.transforms.interpreters.trace_state import under_jit as unsafe_am_i_under_a_jit_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.interpreters.trace_state import under_vmap as unsafe_am_i_under_a_vmap_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.programs.jaxpr_views import ClosedJaxpr as ClosedJaxpr
from shardwise.transforms.programs.jaxpr_views import DropVar as DropVar
from shardwise.transforms.programs.jaxpr_views import Jaxpr as Jaxpr
from shardwise.transforms.programs.jaxpr_views import JaxprEqn as JaxprEqn
from shardwise.transforms.programs.jaxpr_views import jaxpr_as_fun as jaxpr_as_fun
from shardwise.transforms.programs.jaxpr_views import jaxprs_in_params as jaxprs_in_params
from shardwise.transforms.programs.jaxpr_views import new_jaxpr_eqn as new_jaxpr_eqn
from shardwise.transforms.programs.jaxpr_views import subjaxprs as subjaxprs
from shardwise.transforms.programs.primitives import Primitive as Primitive

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.extend.core import primitives as primitives

array_types = {_Array, _np.ndarray, _np.generic}


class EffectTypes:
    """Kinds of effects that a library allows somewhere, for it to ask again. Loops, branches and calls here run effects of any kind."""

    def __init__(self) -> None:
        self._types: set[type] = set()

    def add_type(self, kind: type) -> None:
        """Allow a kind."""
        self._types.add(kind)

    def contains(self, effect: _typing.Any) -> bool:
        """Whether the kind of `effect` is allowed."""
        return isinstance(effect, tuple(self._types))


control_flow_allowed_effects = EffectTypes()


def mapped_aval(size: int, axis: int | None, aval: _ShapedArray) -> _ShapedArray:
    """The type of one of the `size` items along dim `axis`; `aval` itself for None."""
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise ValueError(f"dim {axis} of {aval.str_short()} should have size {size}.")
    axis %= aval.ndim
    return _ShapedArray((*aval.shape[:axis], *aval.shape[axis + 1 :]), aval.dtype, aval.weak_type)


def unmapped_aval(
    size: int, axis: int | None, aval: _ShapedArray, explicit_mesh_axis: _typing.Any = None
) -> _ShapedArray:
    """The type of `size` items stacked along a new dim `axis`; `aval` itself for None.

    NotImplementedError for an `explicit_mesh_axis`: the new dim is whole.
    """
    if explicit_mesh_axis is not None:
        raise NotImplementedError("unmapped_aval makes a whole dim; update the type's sharding to split it.")
    if axis is None:
        return aval
    axis %= aval.ndim + 1
    return _ShapedArray((*aval.shape[:axis], size, *aval.shape[axis:]), aval.dtype, aval.weak_type)


if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _open_package(__name__, "primitives")
