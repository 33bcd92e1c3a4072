"""Functions that move elements but do not compute: views, pieces, repetitions, counting; each kind has its file."""

from shardwise.ops import broadcast as _broadcast
from shardwise.ops import iota as _iota
from shardwise.ops import pieces
from shardwise.ops import reshape as _reshape
from shardwise.ops import transpose as _transpose
from shardwise.ops.broadcast import *  # noqa: F403
from shardwise.ops.iota import *  # noqa: F403
from shardwise.ops.pieces import *  # noqa: F403
from shardwise.ops.reshape import *  # noqa: F403
from shardwise.ops.transpose import *  # noqa: F403

__all__: list[str] = []
__all__ += _broadcast.__all__
__all__ += _iota.__all__
__all__ += pieces.__all__
__all__ += _reshape.__all__
__all__ += _transpose.__all__
