"""Checkpoints through TensorStore: each process writes the shards that it owns, and reads those that it is to own.

In: arrays, and TensorStore specs of the places that hold them. Out: the places written, by a thread that runs beside the
program, or arrays of the given shardings. The package `tensorstore` is imported when a manager first uses it.
"""

from __future__ import annotations

import abc
import importlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import is_key_dtype
from shardwise.base.listing import listing as _listing
from shardwise.engine.array import ArrayImpl
from shardwise.engine.make_array import make_array_from_callback
from shardwise.experimental.multihost_utils import sync_global_devices
from shardwise.runtime.processes.comm import world
from shardwise.sharding import Sharding

__all__ = ["GlobalAsyncCheckpointManager", "GlobalAsyncCheckpointManagerBase", "get_tensorstore_spec"]

_CLOUD = {"gs": "gcs", "s3": "s3"}  # the scheme of a path -> the kvstore driver


def get_tensorstore_spec(
    ckpt_path: str | os.PathLike[str],
    ocdbt: bool | None = None,
    process_idx: int | None = None,
    arr: Any = None,
    driver: str | None = None,
) -> dict[str, Any]:
    """The TensorStore spec of the array at a path.

    Args:
        ckpt_path: a folder, or a place in a bucket (``gs://bucket/path``, ``s3://bucket/path``).
        ocdbt: whether all arrays of the parent folder share one OCDBT store; None: as the dialect's JAX does.
        process_idx: put the array into the folder of this process, beside the last part of the path.
        arr: an array whose shape, dtype and shards the spec is to describe.
        driver: of the array; None: that of the dialect's JAX.

    Raises:
        ValueError: a cloud path without a bucket, or a relative path with OCDBT.

    >>> from shardwise.experimental.array_serialization import serialization
    >>> serialization.get_tensorstore_spec("/tmp/model/w", ocdbt=False)["kvstore"]["path"]
    '/tmp/model/w'
    """
    ocdbt = config.dialect.arrays.checkpoints_share_store if ocdbt is None else ocdbt
    path = re.sub("^(gs|s3):/", r"\1://", os.path.normpath(os.fspath(ckpt_path)))
    if process_idx is not None:
        parent, name = os.path.split(path)
        path = os.path.join(parent, f"process_{process_idx}", name)
    spec: dict[str, Any] = {"driver": driver or config.dialect.arrays.checkpoint_driver}
    if ocdbt:
        parent, name = os.path.split(path)
        if "://" not in parent and not os.path.isabs(parent):
            raise ValueError(
                f"{path} is relative: a store that arrays share needs the absolute path. Use os.path.abspath."
            )
        spec["kvstore"] = {"driver": "ocdbt", "base": _folder(parent), "path": name}
    else:
        spec["kvstore"] = _folder(path)
    if arr is not None:
        spec["dtype"] = np.dtype(arr.dtype).name
        spec["schema"] = {"domain": {"shape": list(arr.shape)}, "chunk_layout": {"chunk": {"shape": _chunk(arr)}}}
    return spec


def _folder(path: str) -> dict[str, str]:
    scheme, separator, rest = path.partition("://")
    if not separator:
        return {"driver": "file", "path": path}
    bucket, _, inside = rest.partition("/")
    if scheme not in _CLOUD or not bucket or not inside:
        raise ValueError(f"{path} names no place in a bucket. Give gs://bucket/path or s3://bucket/path.")
    return {"driver": _CLOUD[scheme], "bucket": bucket, "path": inside}


def _chunk(x: Any) -> list[int]:
    """The shape of the parts in which an array is stored: its shards, so that processes write to different files."""
    shape = tuple(x.shape)
    return [max(n, 1) for n in (x.sharding.shard_shape(shape) if isinstance(x, ArrayImpl) else shape)]


def _tensorstore() -> Any:
    try:
        return importlib.import_module("tensorstore")
    except ImportError as error:
        raise ImportError(
            "checkpoints are written by the package tensorstore, which is not here: pip install tensorstore"
        ) from error


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
        commits = [c for x, spec in zip(arrays, tensorstore_specs, strict=True) for c in _write(x, spec, transaction)]
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
    ) -> list[Any]:
        """Read arrays, each with its sharding.

        Args:
            shardings: one per array.
            tensorstore_specs: where the arrays lie.
            global_shapes: of the results, if they differ from the stored ones: dims are cut, or filled up with zeros.
            dtypes: of the results, if they differ.
        """
        self.wait_until_finished()
        shapes = global_shapes if global_shapes is not None else [None] * len(shardings)
        kinds = dtypes if dtypes is not None else [None] * len(shardings)
        return [
            _read(sharding, spec, shape, dtype)
            for sharding, spec, shape, dtype in zip(shardings, tensorstore_specs, shapes, kinds, strict=True)
        ]

    def deserialize_with_paths(
        self,
        shardings: Sequence[Sharding],
        paths: Sequence[str],
        global_shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[Any] | None = None,
    ) -> list[Any]:
        """`deserialize`, from the specs that `get_tensorstore_spec` gives for the paths."""
        return self.deserialize(shardings, [get_tensorstore_spec(p) for p in paths], global_shapes, dtypes)


def _write(x: Any, spec: dict[str, Any], transaction: Any) -> list[Any]:
    """Hand an array's shards to TensorStore, which has copied them then; futures of their commits."""
    ts = _tensorstore()
    if is_key_dtype(x.dtype):
        raise TypeError(
            f"the array for {spec['kvstore']} holds keys of type {x.dtype.name}. Write random.key_data of them, and read them with "
            "random.wrap_key_data."
        )
    description = {
        "dtype": ts.dtype(np.dtype(x.dtype).name),
        "shape": list(x.shape),
        "chunk_layout": ts.ChunkLayout(chunk_shape=_chunk(x)),
    }
    if "metadata" in spec or "schema" in spec:
        description = {}
    store = ts.open(ts.Spec(spec), create=True, open=True, transaction=transaction, **description).result()
    shards = (
        [(s.index, s.data) for s in x.addressable_shards if s.replica_id == 0]
        if isinstance(x, ArrayImpl)
        else [(..., x)]
    )
    writes = [store[index].write(np.asarray(data)) for index, data in shards]
    for write in writes:
        write.copy.result()
    return [] if transaction is not None else [write.commit for write in writes]


def _read(sharding: Sharding, spec: dict[str, Any], shape: Sequence[int] | None, dtype: Any) -> Any:
    ts = _tensorstore()
    store = ts.open(ts.Spec(spec), open=True).result()
    whole = tuple(store.shape) if shape is None else tuple(shape)
    if len(whole) != len(store.shape):
        raise ValueError(
            f"global_shapes has {whole} for the array at {spec['kvstore']}, which is stored with shape {tuple(store.shape)}. Give a "
            "shape of as many dims, and reshape the result."
        )
    kind = store.dtype.numpy_dtype if dtype is None else np.dtype(dtype)

    def part(index: tuple[slice, ...]) -> Any:
        bounds = [s.indices(n)[:2] for s, n in zip(index, whole, strict=True)]
        stored_slices = tuple(slice(a, max(a, min(b, n))) for (a, b), n in zip(bounds, store.shape, strict=True))
        sizes = [b - a for a, b in bounds]
        if any(s.start >= n for s, n in zip(stored_slices, store.shape, strict=True)):
            return np.zeros(sizes, kind)
        values = np.asarray(store[stored_slices].read().result()).astype(kind, copy=False)
        pad_widths = [(0, n - m) for n, m in zip(sizes, values.shape, strict=True)]
        return np.pad(values, pad_widths) if any(n for _, n in pad_widths) else values

    return make_array_from_callback(whole, sharding, part)


__dir__ = _listing(__name__)
