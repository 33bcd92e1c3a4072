"""Functions that give elements other places, in two files: other shapes and orders of dims, repeated or rotated elements."""

from shardwise.numpy import rearranging, shapes
from shardwise.numpy.rearranging import *  # noqa: F403
from shardwise.numpy.shapes import *  # noqa: F403

__all__: list[str] = []
__all__ += rearranging.__all__
__all__ += shapes.__all__
