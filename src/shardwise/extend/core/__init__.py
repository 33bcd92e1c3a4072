"""`shardwise.extend.core`: programs as values, for interpreters of them, and new primitives."""

import importlib as _importlib
from typing import Any as _Any

import numpy as _np

from shardwise.ir import Array as _Array
from shardwise.ir import Literal as Literal
from shardwise.ir import Var as Var
from shardwise.transforms.jaxpr_views import ClosedJaxpr as ClosedJaxpr
from shardwise.transforms.jaxpr_views import DropVar as DropVar
from shardwise.transforms.jaxpr_views import Jaxpr as Jaxpr
from shardwise.transforms.jaxpr_views import JaxprEqn as JaxprEqn
from shardwise.transforms.jaxpr_views import jaxpr_as_fun as jaxpr_as_fun
from shardwise.transforms.jaxpr_views import jaxprs_in_params as jaxprs_in_params
from shardwise.transforms.jaxpr_views import new_jaxpr_eqn as new_jaxpr_eqn
from shardwise.transforms.jaxpr_views import subjaxprs as subjaxprs
from shardwise.transforms.primitives import Primitive as Primitive

array_types = {_Array, _np.ndarray, _np.generic}


def __getattr__(name: str) -> _Any:
    if name == "primitives":
        return _importlib.import_module(f"{__name__}.primitives")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
