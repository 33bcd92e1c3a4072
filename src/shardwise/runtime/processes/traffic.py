"""How much this process has handed to others, counted where it is handed over."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import field

from shardwise.base.lazy_dataclasses import dataclass


@dataclass
class Traffic:
    """Exchanges between processes as one process sees them: the bytes that it sent, not those that it received.

    Attributes:
        calls: how many exchanges of each kind there were.
        bytes: how many bytes went to other processes in them. In an all-reduce of b bytes between n processes that is
            2 (n - 1) / n * b, what each sends in a reduce-scatter and an all-gather of the results.
    """

    calls: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """The bytes of all kinds."""
        return sum(self.bytes.values())

    @property
    def total_calls(self) -> int:
        """The exchanges of all kinds."""
        return sum(self.calls.values())

    def add(self, kind: str, sent: int) -> None:
        """Count one exchange."""
        self.calls[kind] = self.calls.get(kind, 0) + 1
        self.bytes[kind] = self.bytes.get(kind, 0) + sent


total_traffic = Traffic()  # since the process began


@contextmanager
def count_traffic() -> Generator[Traffic]:
    """Count what this process sends to the others inside of a `with` block.

    Yields a `Traffic` that is filled in as the block ends: `calls` and `bytes` by kind of exchange, and `total_bytes`. With
    one process it stays empty.

    >>> with jax.debug.count_traffic() as traffic:
    ...     _ = jnp.sum(jnp.arange(4))
    >>> traffic.total_bytes  # one process: nothing was sent
    0
    """
    calls, sent = dict(total_traffic.calls), dict(total_traffic.bytes)
    found = Traffic()
    try:
        yield found
    finally:
        for kind, n in total_traffic.calls.items():
            if more := n - calls.get(kind, 0):
                found.calls[kind] = more
                found.bytes[kind] = total_traffic.bytes[kind] - sent.get(kind, 0)
