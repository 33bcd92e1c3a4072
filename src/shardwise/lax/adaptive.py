"""The functions of `lax` as the other modules call them: a Python scalar takes the dtype of the arrays beside it.

`shardwise.lax` gives users the same functions, made strict where JAX's are.
"""

import importlib as _importlib
import typing as _typing

from shardwise.lax.composite import after_all as after_all
from shardwise.lax.composite import composite as composite
from shardwise.lax.composite import create_token as create_token
from shardwise.lax.hidden_state import rng_uniform as rng_uniform
from shardwise.lax.local import conv_general_dilated_local as conv_general_dilated_local
from shardwise.lax.mapping import map as map
from shardwise.lax.positional_axes import *  # noqa: F403
from shardwise.lax.ragged import RaggedDotDimensionNumbers as RaggedDotDimensionNumbers
from shardwise.lax.ragged import ragged_dot as ragged_dot
from shardwise.lax.ragged import ragged_dot_general as ragged_dot_general
from shardwise.lax.ragged_exchange import ragged_all_to_all as ragged_all_to_all
from shardwise.lax.scaled import scaled_dot as scaled_dot
from shardwise.lax.values import shape_as_value as shape_as_value
from shardwise.lax.values import stage as stage
from shardwise.ops.control import *  # noqa: F403
from shardwise.ops.control.sinks import dce_sink as dce_sink
from shardwise.ops.devices.barrier import optimization_barrier as optimization_barrier
from shardwise.ops.devices.parallel import *  # noqa: F403
from shardwise.ops.elementwise import AccuracyMode as AccuracyMode
from shardwise.ops.elementwise import Tolerance as Tolerance
from shardwise.ops.elementwise.binary import *  # noqa: F403
from shardwise.ops.elementwise.bitwise import *  # noqa: F403
from shardwise.ops.elementwise.casts import *  # noqa: F403
from shardwise.ops.elementwise.comparison import *  # noqa: F403
from shardwise.ops.elementwise.selection import *  # noqa: F403
from shardwise.ops.elementwise.special import *  # noqa: F403
from shardwise.ops.elementwise.transcendental import *  # noqa: F403
from shardwise.ops.elementwise.unary import *  # noqa: F403
from shardwise.ops.indexing.apply import *  # noqa: F403
from shardwise.ops.indexing.dim_slices import *  # noqa: F403
from shardwise.ops.indexing.gather import *  # noqa: F403
from shardwise.ops.indexing.scatter import *  # noqa: F403
from shardwise.ops.indexing.slicing import *  # noqa: F403
from shardwise.ops.indexing.sorting import *  # noqa: F403
from shardwise.ops.linalg.fft import *  # noqa: F403
from shardwise.ops.products.contract import *  # noqa: F403
from shardwise.ops.products.conv import *  # noqa: F403
from shardwise.ops.products.conv_geometry import *  # noqa: F403
from shardwise.ops.random.rng_bits import *  # noqa: F403
from shardwise.ops.reductions.any_monoid import *  # noqa: F403
from shardwise.ops.reductions.arg_extrema import *  # noqa: F403
from shardwise.ops.reductions.cumulative import *  # noqa: F403
from shardwise.ops.reductions.reduce import *  # noqa: F403
from shardwise.ops.reductions.window import *  # noqa: F403
from shardwise.ops.shapes import rev as rev
from shardwise.ops.shapes.broadcast import *  # noqa: F403
from shardwise.ops.shapes.fill import *  # noqa: F403
from shardwise.ops.shapes.iota import *  # noqa: F403
from shardwise.ops.shapes.joining import *  # noqa: F403
from shardwise.ops.shapes.pieces import *  # noqa: F403
from shardwise.ops.shapes.reshape import *  # noqa: F403
from shardwise.ops.shapes.transpose import *  # noqa: F403
from shardwise.transforms.jit.constraints import with_sharding_constraint as with_sharding_constraint

if _typing.TYPE_CHECKING:  # what `shardwise.lax` imports
    from shardwise.lax import linalg as linalg
    from shardwise.transforms.derivatives.implicit import custom_linear_solve as custom_linear_solve
    from shardwise.transforms.derivatives.implicit import custom_root as custom_root

if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        return getattr(_importlib.import_module("shardwise.lax"), name)  # for names that are made or imported on demand
