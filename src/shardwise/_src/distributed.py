"""This process's place among the others."""

from collections.abc import Sequence
from typing import Any

from shardwise.base.errors import JaxRuntimeError
from shardwise.distributed import is_initialized
from shardwise.engine.planned import recorder
from shardwise.sharding.backend import process_count, process_index


class _Alone:
    """The coordination client of a planned run, in which this process stands for all: nobody else writes or is waited for."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def connect(self) -> None:
        """There is nobody to connect to."""

    def shutdown(self) -> None:
        """Forget all values."""
        self._values.clear()

    def get_live_nodes(self, process_ids: Sequence[int]) -> dict[int, int]:
        """All of them, each in its first life."""
        return dict.fromkeys(process_ids, 1)

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int = 0, process_ids: Any = None) -> None:
        """Every process is here."""
        del barrier_id, timeout_in_ms, process_ids

    def key_value_set(self, key: str, value: Any, allow_overwrite: bool = False) -> None:
        """Keep a value; JaxRuntimeError if the key has one and must not be overwritten."""
        if key in self._values and not allow_overwrite:
            raise JaxRuntimeError(f"ALREADY_EXISTS: the key {key!r} has a value. Pass allow_overwrite=True.")
        self._values[key] = value

    key_value_set_bytes = key_value_set

    def key_value_try_get(self, key: str) -> Any:
        """The value of a key; JaxRuntimeError if there is none."""
        if key not in self._values:
            raise JaxRuntimeError(f"NOT_FOUND: the key {key!r} has no value, and in a planned run nobody else sets it.")
        return self._values[key]

    key_value_try_get_bytes = key_value_try_get

    def blocking_key_value_get(self, key: str, timeout_in_ms: int = 0) -> Any:
        """The value of a key; JaxRuntimeError at once if there is none, as nobody else will set it."""
        del timeout_in_ms
        return self.key_value_try_get(key)

    blocking_key_value_get_bytes = blocking_key_value_get

    def key_value_increment(self, key: str, increment: int) -> int:
        """Add to the number of a key, which begins at 0; the sum."""
        self._values[key] = total = int(self._values.get(key, 0)) + increment
        return total

    def key_value_dir_get(self, key: str) -> list[tuple[str, Any]]:
        """All keys that begin so, with their values."""
        return [(name, value) for name, value in self._values.items() if name.startswith(key)]

    key_value_dir_get_bytes = key_value_dir_get

    def key_value_delete(self, key: str) -> None:
        """Forget a key, and those below it."""
        for name in [n for n in self._values if n == key or n.startswith(key + "/")]:
            del self._values[name]


class _State:
    """The process's number and the number of processes. There is no coordination client: processes communicate through MPI.

    In a planned run there is one, as programs for several hosts expect it.
    """

    def __init__(self) -> None:
        self._alone: tuple[Any, _Alone] | None = None

    @property
    def client(self) -> Any:
        """The coordination client of a planned run; None elsewhere."""
        run = recorder()
        if run is None or not is_initialized():
            return None
        if self._alone is None or self._alone[0] is not run:
            self._alone = run, _Alone()
        return self._alone[1]

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
