"""`linear_util`: wrapped functions."""

from shardwise.extend.linear_util import *  # noqa: F403
