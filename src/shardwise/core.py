"""`shardwise.core`: the types behind arrays and programs, for code that inspects its arguments."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.errors import ConcretizationTypeError as ConcretizationTypeError
from shardwise.base.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from shardwise.base.errors import JaxprTypeError as JaxprTypeError
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array, ProgramError, eagerly, verify
from shardwise.ir import Literal as Literal
from shardwise.ir import ShapedArray as ShapedArray
from shardwise.ir import Trace as Trace
from shardwise.ir import Tracer as Tracer
from shardwise.ir import Var as Var
from shardwise.ir import is_concrete as is_concrete
from shardwise.ops.rules.convert import as_value
from shardwise.transforms.interpreters.jvp import tangent_type
from shardwise.transforms.interpreters.trace_state import axis_names as unsafe_get_axis_names_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.interpreters.trace_state import find_top_trace as find_top_trace
from shardwise.transforms.interpreters.trace_state import get_opaque_trace_state as get_opaque_trace_state
from shardwise.transforms.interpreters.trace_state import nonempty_axis_env as nonempty_axis_env_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.interpreters.trace_state import under_jit as unsafe_am_i_under_a_jit_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.interpreters.trace_state import under_vmap as unsafe_am_i_under_a_vmap_DO_NOT_USE  # noqa: F401  # pyright: ignore[reportUnusedImport]
from shardwise.transforms.programs.jaxpr_views import ClosedJaxpr as ClosedJaxpr
from shardwise.transforms.programs.jaxpr_views import DropVar as DropVar
from shardwise.transforms.programs.jaxpr_views import Jaxpr as Jaxpr
from shardwise.transforms.programs.jaxpr_views import JaxprEqn as JaxprEqn
from shardwise.transforms.programs.jaxpr_views import eval_jaxpr as eval_jaxpr
from shardwise.transforms.programs.jaxpr_views import jaxpr_as_fun as jaxpr_as_fun
from shardwise.transforms.programs.jaxpr_views import jaxprs_in_params as jaxprs_in_params
from shardwise.transforms.programs.jaxpr_views import new_jaxpr_eqn as new_jaxpr_eqn
from shardwise.transforms.programs.jaxpr_views import subjaxprs as subjaxprs
from shardwise.transforms.programs.primitives import Primitive as Primitive
from shardwise.transforms.tracing import ensure_compile_time_eval as ensure_compile_time_eval

AbstractValue = ShapedArray
Atom = Var | Literal
Value = Any


no_effects: frozenset[str] = frozenset()


class Effect:
    """Base of the kinds of effects that `Primitive.def_effectful_abstract_eval` gives; any effect keeps an equation."""


Effects = set[Effect]


class DebugInfo(NamedTuple):
    """A library's description of a program that it makes: its purpose, its origin, and the names of arguments and results."""

    traced_for: str
    func_src_info: str
    arg_names: tuple[str, ...] | None
    result_paths: tuple[str, ...] | None


def gensym() -> Callable[[ShapedArray], Var]:
    """A function that makes a new variable of a type."""
    return Var


def get_aval(x: Any) -> ShapedArray:
    """The type (shape, dtype, weak_type) of an array, tracer, or host value; TypeError for anything else."""
    return as_value(x).aval


# The types of host values, and the functions that compute them. Libraries enter classes derived from these, which are values in any case.
pytype_aval_mappings: dict[type, Any] = dict.fromkeys(
    (Array, np.ndarray, np.generic, bool, int, float, complex), get_aval
)


def is_constant_dim(d: Any) -> bool:
    """Whether a size of a dim is a number, as all sizes are but the symbolic ones of exported functions."""
    try:
        operator.index(d)
    except TypeError:
        return False
    return True


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """The dtype of tangents of values of that dtype: the same, or float0."""
    return tangent_type(ShapedArray((), primal_dtype)).dtype


def concrete_or_error(force: Any, val: Any, context: str = "") -> Any:
    """``force(val)`` of a known value (the value itself if `force` is None); ConcretizationTypeError for a tracer."""
    if not is_concrete(val):
        raise ConcretizationTypeError(
            f"Abstract tracer value encountered where concrete value is expected: {val}. {context}"
        )
    return val if force is None else force(val)


def valid_jaxtype(x: Any) -> bool:
    """Whether `x` may be given to an op: an array, a NumPy array of a known dtype, or a scalar."""
    try:
        as_value(x)
    except (TypeError, ValueError):
        return False
    return True


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Check a program: each value is defined before it is used, and has the type that its op gives.

    Raises:
        JaxprTypeError: it does not hold.
    """
    try:
        verify(jaxpr.program)
    except ProgramError as error:
        raise JaxprTypeError(str(error)) from error


def eval_context() -> Any:
    """Context in which ops run at once, also inside a traced function."""
    return eagerly()


def call(fun: Any, *args: Any) -> Any:
    """``fun(*args)``."""
    return fun(*args)


__dir__ = _listing(__name__)
