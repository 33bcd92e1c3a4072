"""`core`, with the queries about active transformations."""

from shardwise.core import *  # noqa: F403
from shardwise.extend.core import get_opaque_trace_state as get_opaque_trace_state
from shardwise.ir import is_eager
from shardwise.transforms.interpreters.trace_state import nonempty_axis_env


def trace_state_clean() -> bool:
    """Whether ops run at once and no axis has a name: no jit, vmap, grad or shard_map is at work."""
    return is_eager() and not nonempty_axis_env()
