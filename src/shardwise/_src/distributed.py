"""This process's place among the others."""

from typing import Any

from shardwise.distributed import is_initialized
from shardwise.sharding.device import process_count, process_index


class _State:
    """The process's number and the number of processes. There is no coordination client: processes communicate through MPI."""

    client: Any = None
    service: Any = None
    coordinator_address: str | None = None

    @property
    def process_id(self) -> int:
        """The number of this process."""
        return process_index()

    @property
    def num_processes(self) -> int | None:
        """How many there are; None before `distributed.initialize`."""
        return process_count() if is_initialized() else None


global_state = _State()
