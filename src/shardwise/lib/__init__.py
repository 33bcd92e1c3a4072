"""`shardwise.lib`: the version that `jaxlib` would have. Nothing else of it is documented."""

from typing import TYPE_CHECKING, Any

from shardwise.base import config
from shardwise.base.gone import no_attribute

if TYPE_CHECKING:
    __version__: str

if not TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return config.dialect.jax_version
        raise no_attribute(__name__, name)
