"""Elementwise functions by file: one operand, transcendental, two operands, bits, comparisons, selection, casts."""

from shardwise.ops.elementwise import binary, bitwise, casts, comparison, transcendental, unary
from shardwise.ops.elementwise import selection as _select
from shardwise.ops.elementwise.accuracy import AccuracyMode, Tolerance
from shardwise.ops.elementwise.binary import *  # noqa: F403
from shardwise.ops.elementwise.bitwise import *  # noqa: F403
from shardwise.ops.elementwise.casts import *  # noqa: F403
from shardwise.ops.elementwise.comparison import *  # noqa: F403
from shardwise.ops.elementwise.selection import *  # noqa: F403
from shardwise.ops.elementwise.transcendental import *  # noqa: F403
from shardwise.ops.elementwise.unary import *  # noqa: F403

__all__ = ["AccuracyMode", "Tolerance"]
__all__ += binary.__all__
__all__ += bitwise.__all__
__all__ += casts.__all__
__all__ += comparison.__all__
__all__ += _select.__all__
__all__ += transcendental.__all__
__all__ += unary.__all__
