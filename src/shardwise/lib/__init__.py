"""`shardwise.lib`: the version that `jaxlib` would have. Nothing else of it is documented."""

from typing import Any

from shardwise.base import config
from shardwise.base.gone import no_attribute


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return config.dialect.jax_version
    raise no_attribute(__name__, name)
