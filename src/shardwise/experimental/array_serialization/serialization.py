"""Checkpoints through TensorStore: each process writes the shards that it owns, and reads those that it is to own.

In: arrays, and TensorStore specs of the places that hold them. Out: the places written, by a thread that runs beside the
program, or arrays of the given shardings. The package `tensorstore` is imported when a manager first uses it.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.engine.array import ArrayImpl
from shardwise.experimental.array_serialization.stored_arrays import get_tensorstore_spec, read_array, write_array
from shardwise.experimental.multihost_utils import sync_global_devices
from shardwise.runtime.processes.comm import world
from shardwise.sharding import Sharding

__all__ = ["GlobalAsyncCheckpointManager", "GlobalAsyncCheckpointManagerBase", "get_tensorstore_spec"]


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """Writes arrays in the background; `wait_until_finished` before they count as written."""

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise the error that the writing ran into, if any."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Return once all is written; raises as `check_for_errors` does."""

    @abc.abstractmethod
    def serialize(self, arrays: Any, tensorstore_specs: Any, *, on_commit_callback: Any) -> None:
        """Begin to write arrays."""

    @abc.abstractmethod
    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[dict[str, Any]],
        global_shapes: Any = None,
        dtypes: Any = None,
    ) -> Any:
        """Read arrays."""


class GlobalAsyncCheckpointManager(GlobalAsyncCheckpointManagerBase):
    """Writes and reads arrays through TensorStore.

    With one process the files are committed by a thread that runs beside the program. Several processes commit before
    `serialize` returns: they then know of each other that all shards are written.

    Args:
        timeout_secs: how long `wait_until_finished` waits before it raises TimeoutError.
    """

    def __init__(self, timeout_secs: float = 300) -> None:
        self._timeout = timeout_secs
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None

    def check_for_errors(self) -> None:
        """Raise the error that the last write ran into, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait_until_finished(self) -> None:
        """Return once all is written. Raises the errors of writing, and TimeoutError if it takes too long."""
        if self._writer is not None:
            self._writer.join(self._timeout)
            if self._writer.is_alive():
                raise TimeoutError(
                    f"arrays are still being written after {self._timeout} s. Call wait_until_finished again, or make the manager "
                    "with a larger timeout_secs."
                )
            self._writer = None
        self.check_for_errors()

    def serialize(
        self,
        arrays: Sequence[Any],
        tensorstore_specs: Sequence[dict[str, Any]],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """Begin to write each array to the place of its spec; `on_commit_callback` is called once all of them lie there.

        A TensorStore `transaction` takes the writes in; who made it commits it.

        Raises:
            ValueError: with several processes, an array that each of them holds by itself.
        """
        self.wait_until_finished()
        several = world() is not None
        for x, spec in zip(arrays, tensorstore_specs, strict=True):
            if several and isinstance(x, ArrayImpl) and x.is_fully_addressable:
                raise ValueError(
                    f"the array for {spec['kvstore']} belongs to one process, and all would write it. Pass arrays over the devices of "
                    "all processes: multihost_utils.host_local_array_to_global_array makes them."
                )
        commits = [
            c for x, spec in zip(arrays, tensorstore_specs, strict=True) for c in write_array(x, spec, transaction)
        ]
        if several:
            for commit in commits:
                commit.result()
            sync_global_devices("checkpoint written")
            self._commit([], on_commit_callback)
            sync_global_devices("checkpoint committed")
            self.check_for_errors()
        else:
            self._writer = threading.Thread(target=self._commit, args=(commits, on_commit_callback), daemon=False)
            self._writer.start()

    def _commit(self, commits: Sequence[Any], on_commit_callback: Callable[[], None] | None) -> None:
        try:
            for commit in commits:
                commit.result()
            processes = world()
            if on_commit_callback is not None and (processes is None or processes.rank == 0):
                on_commit_callback()
        except BaseException as error:  # the program's thread raises it
            self._error = error

    def serialize_with_paths(
        self,
        arrays: Sequence[Any],
        paths: Sequence[str],
        *,
        on_commit_callback: Callable[[], None] | None = None,
        transaction: Any = None,
    ) -> None:
        """`serialize`, to the specs that `get_tensorstore_spec` gives for the paths."""
        specs = [get_tensorstore_spec(p) for p in paths]
        self.serialize(arrays, specs, on_commit_callback=on_commit_callback, transaction=transaction)

    def deserialize(
        self,
        shardings: Sequence[Sharding],
        tensorstore_specs: Sequence[dict[str, Any]],
        global_shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Any]:
        """Read arrays, each with its sharding.

        Args:
            shardings: one per array.
            tensorstore_specs: where the arrays lie.
            global_shapes: of the results, if they differ from the stored ones: dims are cut, or filled up with zeros.
            dtypes: of the results, if they differ.
            concurrent_gb: has no effect: arrays are read one after another.
        """
        self.wait_until_finished()
        shapes = global_shapes if global_shapes is not None else [None] * len(shardings)
        kinds = dtypes if dtypes is not None else [None] * len(shardings)
        return [
            read_array(sharding, spec, shape, dtype)
            for sharding, spec, shape, dtype in zip(shardings, tensorstore_specs, shapes, kinds, strict=True)
        ]

    def deserialize_with_paths(
        self,
        shardings: Sequence[Sharding],
        paths: Sequence[str],
        global_shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
    ) -> list[Any]:
        """`deserialize`, from the specs that `get_tensorstore_spec` gives for the paths."""
        specs = [get_tensorstore_spec(p) for p in paths]
        return self.deserialize(shardings, specs, global_shapes, dtypes, concurrent_gb)


__dir__ = _listing(__name__)
