"""Programs of today's JAX, spelled for the one of the seeds."""

from __future__ import annotations

# Names that moved, and options that were renamed, between the two.
SPELLINGS = {
    "jax.shard_map(": "jax.experimental.shard_map.shard_map(",
    "jax.shard_map,": "jax.experimental.shard_map.shard_map,",
    "check_vma": "check_rep",
    "jax.set_mesh(": "jax.sharding.use_mesh(",
    "jax.reshard(": "jax.experimental.shard.reshard(",
    "jax.sharding.auto_axes(": "jax.experimental.shard.auto_axes(",
    "jax.enable_x64(True)": "jax.experimental.enable_x64()",
}
IMPORTS = "import jax.experimental.shard_map, jax.experimental.shard\n"


def spelled(source: str, dialect: str) -> str:
    """`source` as a program of the dialect's era writes it."""
    if dialect == "latest":
        return source
    for today, then in SPELLINGS.items():
        source = source.replace(today, then)
    return IMPORTS + source
