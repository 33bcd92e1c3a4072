"""The backends by name: the one there is, once the first use of a device has made it."""

from collections.abc import Iterator, Mapping

from shardwise.sharding.backend import backend, backend_initialized
from shardwise.sharding.device import Client


class _Backends(Mapping[str, Client]):
    """Empty until devices are used."""

    def __getitem__(self, name: str) -> Client:
        if name != "cpu" or not backend_initialized():
            raise KeyError(name)
        return backend()

    def __iter__(self) -> Iterator[str]:
        return iter(["cpu"] if backend_initialized() else [])

    def __len__(self) -> int:
        return int(backend_initialized())


_backends = _Backends()


def backends_are_initialized() -> bool:
    """Whether devices have been used, so that their number is settled."""
    return backend_initialized()
