"""`shardwise.interpreters.xla`: where `DeviceArray` was; asking for it tells what took its place."""

from typing import Any

from shardwise.base.gone import no_attribute

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    raise no_attribute(__name__, name)
