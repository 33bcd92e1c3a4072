"""Types of mutable references."""

from shardwise.ref import AbstractRef as AbstractRef
