"""`numpy`'s functions of elements, and their class `ufunc`."""

from shardwise.numpy import *  # noqa: F403
