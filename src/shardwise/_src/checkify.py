"""`checkify` with its type variable."""

from typing import TypeVar

from shardwise.experimental.checkify import *  # noqa: F403

Out = TypeVar("Out")
