"""`typing`: names for annotations."""

from shardwise.ir import Array as Array
from shardwise.typing import *  # noqa: F403
