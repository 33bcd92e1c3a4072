"""`dispatch`: waiting for what has been started."""

from shardwise.transforms.tracing.blocking import effects_barrier as wait_for_tokens  # noqa: F401
