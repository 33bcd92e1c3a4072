"""Elementwise functions, in four files: of one operand, of two, choices, casts; and arrays of one value."""

from shardwise.ops import binary, casts, fill, unary
from shardwise.ops import select as _select
from shardwise.ops.accuracy import AccuracyMode, Tolerance
from shardwise.ops.binary import *  # noqa: F403
from shardwise.ops.casts import *  # noqa: F403
from shardwise.ops.fill import *  # noqa: F403
from shardwise.ops.select import *  # noqa: F403
from shardwise.ops.unary import *  # noqa: F403

__all__ = ["AccuracyMode", "Tolerance"]
__all__ += binary.__all__
__all__ += casts.__all__
__all__ += fill.__all__
__all__ += _select.__all__
__all__ += unary.__all__
