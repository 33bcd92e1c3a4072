"""`core`, with the queries about active transformations."""

from shardwise.core import *  # noqa: F403
from shardwise.extend.core import TraceTag as TraceTag
from shardwise.extend.core import find_top_trace as find_top_trace
from shardwise.extend.core import get_opaque_trace_state as get_opaque_trace_state
from shardwise.extend.core import mapped_aval as mapped_aval
from shardwise.extend.core import primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype
from shardwise.extend.core import set_current_trace as set_current_trace
from shardwise.extend.core import take_current_trace as take_current_trace
from shardwise.extend.core import unmapped_aval as unmapped_aval
from shardwise.ir import is_eager
from shardwise.transforms.interpreters.trace_state import TraceContext, nonempty_axis_env

trace_ctx = TraceContext()


def trace_state_clean() -> bool:
    """Whether ops run at once and no axis has a name: no jit, vmap, grad or shard_map is at work."""
    return is_eager() and not nonempty_axis_env()
