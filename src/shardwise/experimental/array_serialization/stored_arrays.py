"""Arrays in TensorStore: where one lies, how its shards are written, and how it is read in another layout.

In: arrays, paths, specs of TensorStore. Out: futures of writes, or arrays. The package `tensorstore` is imported when it is first used.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import is_key_dtype
from shardwise.engine.array import ArrayImpl
from shardwise.engine.make_array import make_array_from_callback
from shardwise.sharding import Sharding

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


def tensorstore() -> Any:
    """The package; ImportError says how to get it."""
    try:
        return importlib.import_module("tensorstore")
    except ImportError as error:
        raise ImportError(
            "checkpoints are written by the package tensorstore, which is not here: pip install tensorstore"
        ) from error


def write_array(x: Any, spec: dict[str, Any], transaction: Any) -> list[Any]:
    """Hand an array's shards to TensorStore, which has copied them then; futures of their commits."""
    ts = tensorstore()
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


def read_array(sharding: Sharding, spec: dict[str, Any], shape: Sequence[int] | None, dtype: Any) -> Any:
    """Read the array of a spec; of another shape (cut, or filled up with zeros) and dtype, if these are given."""
    ts = tensorstore()
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
