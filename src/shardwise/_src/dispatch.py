"""`dispatch`: waiting for started computations."""

from shardwise.transforms.tracing import effects_barrier

wait_for_tokens = effects_barrier
