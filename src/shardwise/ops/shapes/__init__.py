"""Functions that move elements without arithmetic: views, pieces, repetition, iota; each kind has its own file."""

from shardwise.ops.shapes import broadcast as _broadcast
from shardwise.ops.shapes import fill, joining, pieces
from shardwise.ops.shapes import iota as _iota
from shardwise.ops.shapes import reshape as _reshape
from shardwise.ops.shapes import reverse as _reverse
from shardwise.ops.shapes import transpose as _transpose
from shardwise.ops.shapes.broadcast import *  # noqa: F403
from shardwise.ops.shapes.fill import *  # noqa: F403
from shardwise.ops.shapes.iota import *  # noqa: F403
from shardwise.ops.shapes.joining import *  # noqa: F403
from shardwise.ops.shapes.pieces import *  # noqa: F403
from shardwise.ops.shapes.reshape import *  # noqa: F403
from shardwise.ops.shapes.reverse import *  # noqa: F403
from shardwise.ops.shapes.transpose import *  # noqa: F403

__all__: list[str] = []
__all__ += _broadcast.__all__
__all__ += fill.__all__
__all__ += _iota.__all__
__all__ += joining.__all__
__all__ += pieces.__all__
__all__ += _reshape.__all__
__all__ += _reverse.__all__
__all__ += _transpose.__all__
