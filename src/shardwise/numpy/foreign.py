"""Arrays from other libraries, buffers, text and files, and files of arrays.

In: objects with `__dlpack__`, buffers, texts, files of NumPy's formats. Out: arrays.
"""

from __future__ import annotations

import os
from typing import IO, Any

import numpy as np

from shardwise.base.dtypes import BY_NAME, canonicalize
from shardwise.engine.array import host_array, shared_array
from shardwise.engine.device_put import place_created
from shardwise.ir import Array
from shardwise.numpy.creation import asarray
from shardwise.runtime.capsules import array_of
from shardwise.runtime.handout import is_constant

__all__ = ["from_dlpack", "frombuffer", "fromfile", "fromiter", "fromstring", "load", "save", "savez"]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """The array of an object with `__dlpack__` in host memory.

    It has memory of its own, unless nobody can write to that of x and `copy` is None. `copy` False always shares it, so that
    later writes to x show; ValueError where that cannot be, as for 64-bit types without x64. TypeError for objects without
    `__dlpack__`, NotImplementedError for other memory.

    Args:
        device: where the result lives: a Device or Sharding.

    >>> import numpy as np
    >>> jnp.from_dlpack(np.arange(3, dtype=np.int32))
    Array([0, 1, 2], dtype=int32)
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise TypeError(
            f"The array passed to from_dlpack must have __dlpack__ and __dlpack_device__ methods, got {type(x)}."
        )
    kind = x.__dlpack_device__()
    if int(kind[0]) != 1:
        raise NotImplementedError(
            f"from_dlpack takes arrays in host memory (device type 1), got {kind}. Copy it there first."
        )
    value = array_of(x)
    if copy is False:
        return _on_shared_memory(value, device)
    if copy and is_constant(value):  # which others may be
        value = value.copy()
    return place_created(host_array(value, explicit=True), device)


def _on_shared_memory(value: np.ndarray[Any, Any], device: Any) -> Array:
    dtype = canonicalize(value.dtype)
    out = None
    if dtype == value.dtype:
        out = place_created(shared_array(value), device)
    if out is None or (value.size and not np.shares_memory(np.asarray(out), value)):
        why = f"{value.dtype} arrays become {dtype}" if out is None else f"{device} does not take the memory as it is"
        raise ValueError(f"from_dlpack(copy=False) requires a copy here: {why}. Set copy=True or copy=None.")
    return out


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """A 1-d array of the numbers of type `dtype` in a buffer.

    Args:
        count: how many numbers; -1 for all.
        offset: the bytes to skip first.

    >>> jnp.frombuffer(bytes([1, 2]), dtype=jnp.uint8)
    Array([1, 2], dtype=uint8)
    """
    return asarray(np.frombuffer(buffer, dtype=_host_dtype(dtype), count=count, offset=offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Array:
    """A 1-d array of the numbers in the text `string`, separated by `sep`. `count`: how many; -1 for all.

    >>> jnp.fromstring('1 2 3', dtype=int, sep=' ')
    Array([1, 2, 3], dtype=int32)
    """
    return asarray(np.fromstring(string, dtype=_host_dtype(dtype), count=count, sep=sep))


def _host_dtype(dtype: Any) -> np.dtype[Any]:
    return np.dtype(getattr(dtype, "dtype", dtype))


def fromiter(*args: Any, **kwargs: Any) -> Array:
    """Not offered: an iterator may give other values when a function is traced again.

    NotImplementedError for any `args` and `kwargs`. Exhaust the iterator with NumPy instead:

    >>> jnp.asarray(np.fromiter((i * i for i in range(3)), np.float32))
    Array([0., 1., 4.], dtype=float32)
    """
    raise NotImplementedError("fromiter is not pure and so unsafe while tracing. Use jnp.asarray(np.fromiter(...)).")


def fromfile(*args: Any, **kwargs: Any) -> Array:
    """Not offered: a file may change between tracing and running.

    NotImplementedError for any `args` and `kwargs`. Read the file with NumPy instead:

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     np.arange(3, dtype=np.float32).tofile(file)
    ...     _ = file.seek(0)
    ...     print(jnp.asarray(np.fromfile(file, np.float32)))
    [0. 1. 2.]
    """
    raise NotImplementedError("fromfile is not pure and so unsafe while tracing. Use jnp.asarray(np.fromfile(...)).")


_BFLOAT16_IN_FILES = np.dtype("V2")  # NumPy's format has no name for it


def load(file: IO[bytes] | str | os.PathLike[Any], *args: Any, **kwargs: Any) -> Any:
    """The array in `file`, a path or file object in the ``.npy`` format; the arrays of a ``.npz`` file by name, as
    NumPy gives them.

    `args` and `kwargs` go to `numpy.load`.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(3))
    >>> _ = file.seek(0)
    >>> jnp.load(file)
    Array([0, 1, 2], dtype=int32)
    """
    out = np.load(file, *args, **kwargs)
    if isinstance(out, np.ndarray) and out.dtype == _BFLOAT16_IN_FILES:
        out = out.view(BY_NAME["bfloat16"])
    return asarray(out) if isinstance(out, np.ndarray) else out


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Write the array `arr` to `file`, a path or file object, in the ``.npy`` format.

    `allow_pickle`: Python objects may be written.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.zeros(2))
    >>> len(file.getvalue())
    136
    """
    np.save(file, np.asarray(arr), allow_pickle=allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """Write arrays to `file`, a path or file object, in the ``.npz`` format: `args` as arr_0, arr_1, ..., and `kwds`
    under their names. ValueError for Python objects without `allow_pickle`.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.savez(file, jnp.zeros(2), scale=jnp.ones(()))
    >>> _ = file.seek(0)
    >>> list(jnp.load(file))
    ['scale', 'arr_0']
    """
    named_arrays: dict[str, Any] = {name: np.asarray(x) for name, x in kwds.items()}
    arrays = [np.asarray(x) for x in args]
    if not allow_pickle and any(x.dtype == object for x in (*arrays, *named_arrays.values())):
        raise ValueError("Object arrays cannot be saved when allow_pickle=False. Allow it, or give arrays of numbers.")
    np.savez(file, *arrays, **named_arrays)
