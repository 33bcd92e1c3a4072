"""A program that does not call initialize."""

import shardwise as jax

print(f"{jax.process_count()} process, {jax.device_count()} devices", flush=True)
