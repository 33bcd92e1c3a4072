"""Trees of arrays as folders, which JAX reads as well: the structure in a text file, the arrays in one store of TensorStore.

In: a tree whose leaves are arrays or None, and a folder. Out: the files, or a tree of arrays with the shardings asked for. With several
processes each writes the shards that it owns into a store of its own; then the first joins these into one, without copying.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from shardwise.base.dtypes import as_dtype, is_key_dtype
from shardwise.base.flat_trees import tree_as_bytes, tree_of_bytes
from shardwise.base.listing import listing as _listing
from shardwise.base.locks import free_lock
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_map, tree_unflatten
from shardwise.base.tree_data import tree_as_data, tree_from_data
from shardwise.engine.array import ArrayImpl
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.experimental.array_serialization.stored_arrays import (
    get_tensorstore_spec,
    read_array,
    tensorstore,
    write_array,
)
from shardwise.experimental.multihost_utils import process_allgather, sync_global_devices
from shardwise.runtime.processes.comm import world
from shardwise.sharding import Sharding

__all__ = ["load", "load_pytreedef", "nonblocking_load", "nonblocking_save", "save"]

_STRUCTURE: Final = "pytreedef.json"
_ARRAYS: Final = "array_store"
_OWN_FILES: Final = {_STRUCTURE, _ARRAYS, "archive.zip"}  # the last is an older JAX's
_TREE: Final = "__jax_pytreedef_repr"
_LEAVES: Final = "__jax_leaf_ids"
_LEAF: Final = re.compile(r"Array\(([a-zA-Z0-9_]+)\[([0-9, ]*)\]\)")

_one_save: Final = free_lock()


class PyTreeFuture(Future[Any]):
    """The result of a save or a load that runs beside the program; it can be awaited, too.

    Attributes:
        pytree: the tree with a `ShapeDtypeStruct` for each array.
    """

    def __init__(self, call: Future[Any], pytree: Any) -> None:
        super().__init__()
        self.pytree = pytree
        self.set_running_or_notify_cancel()
        call.add_done_callback(self._end)

    def _end(self, call: Future[Any]) -> None:
        error = call.exception()
        if error is None:
            self.set_result(call.result())
        else:
            self.set_exception(error)

    def __await__(self) -> Generator[None, None, Any]:
        while not self.done():
            yield
        return self.result()

    def __repr__(self) -> str:
        return f"PyTreeFuture(done={self.done()}, pytree={self.pytree})"


def save(data: Any, directory: str | os.PathLike[str], *, overwrite: bool = True, ts_specs: Any = None) -> None:
    """Write a tree of arrays into a folder.

    Args:
        data: a tree whose leaves are arrays or None. Classes of nodes are registered by `export.register_pytree_node_serialization`.
        directory: a folder of this machine's files, of which all but the last part is there. Several processes give the same.
        overwrite: replace the checkpoint that lies there; False: the folder has to be empty.
        ts_specs: TensorStore specs that are joined to those of the arrays, as a prefix of the tree; None: nothing.

    Raises:
        ValueError: a leaf is no array, files lie in the folder, or processes name different folders.
        RuntimeError: the folder has files which are not a checkpoint's.
        TypeError: an array holds random keys, or keys of a dict are no texts.
        NotImplementedError: the folder is in a bucket.

    >>> import tempfile
    >>> from shardwise.experimental.array_serialization import pytree_serialization
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pytree_serialization.save({"w": jnp.arange(3), "step": None}, folder + "/model")
    ...     pytree_serialization.load(folder + "/model", jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    {'step': None, 'w': Array([0, 1, 2], dtype=int32)}
    """
    with _one_save:
        _save(data, _folder(directory), overwrite, ts_specs)


def _save(data: Any, root: Path, overwrite: bool, ts_specs: Any) -> None:
    leaves, treedef = tree_flatten(data, _is_none)
    for x in leaves:
        if not (x is None or _is_array(x)):
            raise ValueError(
                f"a checkpoint holds arrays and None, and one leaf is {x!r} of {type(x)}. Make an array of it (jnp.asarray), or leave "
                "it out."
            )
    leaf_numbers = tree_unflatten(treedef, range(len(leaves)))
    specs = broadcast_prefix(ts_specs, leaf_numbers, _is_spec, name="ts_specs")
    structure = {
        _TREE: base64.b64encode(tree_as_bytes(tree_as_data(treedef))).decode(),
        _LEAVES: [_leaf_as_text(x) for x in leaves],
    }
    _check_one_folder(root)
    _prepare(root, overwrite)
    processes = world()
    if processes is None or processes.rank == 0:
        (root / _STRUCTURE).write_text(json.dumps(structure, indent=2))
    rank = None if processes is None else processes.rank
    commits = [
        commit
        for i, (x, spec) in enumerate(zip(leaves, specs, strict=True))
        if x is not None
        for commit in write_array(x, _spec(root, i, spec, rank), None)
    ]
    for commit in commits:
        commit.result()
    if processes is not None:
        sync_global_devices("pytree written")
        if processes.rank == 0 and commits:
            _join_stores(root, processes.size)
        sync_global_devices("pytree joined")


def load(directory: str | os.PathLike[str], shardings: Any, *, mask: Any = None, ts_specs: Any = None) -> Any:
    """Read a tree of arrays that `save` wrote, here or under JAX.

    Args:
        directory: the folder.
        shardings: of the arrays, as a prefix of the tree: a Sharding, or a ShapeDtypeStruct that has one and the dtype of the result.
            Shapes are those that were stored.
        mask: a prefix of the tree: False for parts that are not read and become None; None: all are read.
        ts_specs: TensorStore specs that are joined to those of the arrays, as a prefix of the tree; None: nothing.

    Raises:
        FileNotFoundError: no checkpoint lies there.
        ValueError: the file of the structure is none, or a prefix does not fit.
        TypeError: an array has no sharding.
        NotImplementedError: the folder is in a bucket, or a `Format` is given in place of a sharding.

    >>> import tempfile
    >>> from shardwise.experimental.array_serialization import pytree_serialization
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pytree_serialization.save({"w": jnp.arange(3)}, folder + "/model")
    ...     pytree_serialization.load(folder + "/model", jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    {'w': Array([0, 1, 2], dtype=int32)}
    """
    root = _folder(directory)
    stubs = load_pytreedef(directory)
    leaves, treedef = tree_flatten(stubs, _is_none)
    leaf_numbers = tree_unflatten(treedef, range(len(leaves)))
    places = broadcast_prefix(shardings, leaf_numbers, _is_none, name="shardings")
    specs = broadcast_prefix(ts_specs, leaf_numbers, _is_spec, name="ts_specs")
    wanted_leaves = broadcast_prefix(True if mask is None else mask, leaf_numbers, name="mask")
    arrays = [
        None if stub is None or not keep else _read_leaf(place, _spec(root, i, spec, None))
        for i, (stub, keep, place, spec) in enumerate(zip(leaves, wanted_leaves, places, specs, strict=True))
    ]
    return tree_unflatten(treedef, arrays)


def _read_leaf(place: Any, spec: dict[str, Any]) -> Any:
    sharding, dtype = (place.sharding, place.dtype) if isinstance(place, ShapeDtypeStruct) else (place, None)
    if isinstance(sharding, Sharding):
        return read_array(sharding, spec, None, dtype)
    if hasattr(place, "layout"):
        raise NotImplementedError(
            "a Format is given where a Sharding is expected: pass its `sharding`; arrays have one layout here."
        )
    raise TypeError(
        f"the array {spec['kvstore']['path']} has no sharding: {place!r} is given. Pass a Sharding, or a ShapeDtypeStruct with "
        "sharding=, for each array or for parts of the tree."
    )


def load_pytreedef(directory: str | os.PathLike[str]) -> Any:
    """The tree of a checkpoint with a `ShapeDtypeStruct` for each array; no array is read.

    Args:
        directory: the folder.

    Raises:
        FileNotFoundError: no checkpoint lies there.
        ValueError: the file of the structure is none, or a node's class is not registered in this process.
        NotImplementedError: the folder is in a bucket.

    >>> import tempfile
    >>> from shardwise.experimental.array_serialization import pytree_serialization
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pytree_serialization.save({"w": jnp.arange(3)}, folder + "/model")
    ...     pytree_serialization.load_pytreedef(folder + "/model")
    {'w': ShapeDtypeStruct(shape=(3,), dtype=int32)}
    """
    path = _folder(directory) / _STRUCTURE
    try:
        content = json.loads(path.read_text())
        tree, leaves = base64.b64decode(content[_TREE]), [_leaf_of_text(text) for text in content[_LEAVES]]
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is not there, so that {path.parent} is no checkpoint of pytree_serialization.save."
        ) from None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is no structure of a checkpoint: {error}") from error
    treedef = tree_from_data(tree_of_bytes(tree))
    if treedef.num_leaves != len(leaves):
        raise ValueError(f"{path} has a tree of {treedef.num_leaves} leaves and describes {len(leaves)}.")
    return tree_unflatten(treedef, leaves)


def nonblocking_save(
    data: Any, directory: str | os.PathLike[str], *, overwrite: bool = True, ts_specs: Any = None
) -> PyTreeFuture:
    """`save` by a thread that runs beside the program.

    Args:
        data: as in `save`.
        directory: as in `save`.
        overwrite: as in `save`.
        ts_specs: as in `save`.

    Returns:
        a future, which can be awaited: `result()` raises the errors of `save`, `pytree` is the tree with a `ShapeDtypeStruct` for each
        array.

    >>> import tempfile
    >>> from shardwise.experimental.array_serialization import pytree_serialization
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pytree_serialization.nonblocking_save({"w": jnp.arange(3)}, folder + "/model").result()
    ...     pytree_serialization.load_pytreedef(folder + "/model")
    {'w': ShapeDtypeStruct(shape=(3,), dtype=int32)}
    """

    def stub(x: Any) -> Any:
        return ShapeDtypeStruct(x.shape, x.dtype) if _is_array(x) else x

    stubs = tree_map(stub, data)
    return PyTreeFuture(_thread().submit(save, data, directory, overwrite=overwrite, ts_specs=ts_specs), stubs)


def nonblocking_load(
    directory: str | os.PathLike[str], shardings: Any, *, mask: Any = None, ts_specs: Any = None
) -> PyTreeFuture:
    """`load` by a thread that runs beside the program.

    Args:
        directory: as in `load`.
        shardings: as in `load`.
        mask: as in `load`.
        ts_specs: as in `load`.

    Returns:
        a future, which can be awaited: `result()` is the tree, or raises the errors of `load`; `pytree` has a `ShapeDtypeStruct` for each
        array.

    >>> import tempfile
    >>> from shardwise.experimental.array_serialization import pytree_serialization
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pytree_serialization.save({"w": jnp.arange(3)}, folder + "/model")
    ...     device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    ...     pytree_serialization.nonblocking_load(folder + "/model", device).result()
    {'w': Array([0, 1, 2], dtype=int32)}
    """
    stubs = load_pytreedef(directory)
    return PyTreeFuture(_thread().submit(load, directory, shardings, mask=mask, ts_specs=ts_specs), stubs)


def _thread() -> ThreadPoolExecutor:
    """A thread for one call; the interpreter waits for it when it ends."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


def _is_none(x: Any) -> bool:
    return x is None


def _is_array(x: Any) -> bool:
    return isinstance(x, ArrayImpl | np.ndarray)


def _is_spec(x: Any) -> bool:
    return x is None or (isinstance(x, dict) and ("driver" in x or "kvstore" in x))


def _folder(directory: str | os.PathLike[str]) -> Path:
    text = os.fspath(directory)
    if "://" in text:
        raise NotImplementedError(
            f"{text} is in a bucket, and pytree_serialization writes files of this machine. Save to a folder and copy it, or use orbax."
        )
    return Path(text).expanduser().resolve()


def _leaf_as_text(x: Any) -> str:
    if x is not None and is_key_dtype(x.dtype):
        raise TypeError(
            f"a leaf holds keys of type {x.dtype.name}. Save random.key_data of them, and wrap what you load by random.wrap_key_data."
        )
    return "null" if x is None else f"Array({np.dtype(x.dtype).name}[{', '.join(map(str, x.shape))}])"


def _leaf_of_text(text: str | None) -> ShapeDtypeStruct | None:
    if text is None or text == "null":
        return None
    parts = _LEAF.fullmatch(text)
    if parts is None:
        raise ValueError(f"a leaf is described as {text!r}, and Array(dtype[shape]) or null is expected.")
    return ShapeDtypeStruct(tuple(int(n) for n in parts[2].split(",") if n.strip()), as_dtype(parts[1]))


def _spec(root: Path, leaf: int, extra: dict[str, Any] | None, process: int | None) -> dict[str, Any]:
    spec = get_tensorstore_spec(root / _ARRAYS / str(leaf), ocdbt=True, process_idx=process, driver="zarr3")
    if extra is None:
        return spec
    full_spec = spec | extra | {"kvstore": spec["kvstore"] | extra.get("kvstore", {})}
    if full_spec["kvstore"].get("base") != spec["kvstore"]["base"] or full_spec["kvstore"]["driver"] != "ocdbt":
        raise ValueError(
            f"ts_specs puts an array into {full_spec['kvstore']}, and all lie in one store of the folder, {spec['kvstore']['base']}. Leave "
            "the driver and the base of the kvstore out."
        )
    return full_spec


def _check_one_folder(root: Path) -> None:
    """With several processes: all of them write into the same folder."""
    if world() is None:
        return
    text = str(root).encode()
    if len(text) > 4096:
        raise ValueError(f"{root} has more than 4096 bytes, which is too long a path for several processes.")
    paths = process_allgather(np.frombuffer(text.ljust(4096, b"\0"), np.uint8))
    if not (np.asarray(paths) == np.asarray(paths)[0]).all():
        raise ValueError(f"processes save to different folders, one of them to {root}. Give all of them the same.")


def _prepare(root: Path, overwrite: bool) -> None:
    """Make the folder, empty of an earlier checkpoint."""
    files = list(root.iterdir()) if root.exists() else []
    if files and not overwrite:
        raise ValueError(f"files lie in {root}, and overwrite=False was given. Choose another folder, or remove them.")
    foreign = sorted(f.name for f in files if f.name not in _OWN_FILES)
    if foreign:
        raise RuntimeError(
            f"{root} has files which are no checkpoint's: {', '.join(foreign)}. Remove them, or choose another folder."
        )
    processes = world()
    if processes is not None:
        sync_global_devices("pytree folder read")
    if processes is None or processes.rank == 0:
        if root.exists():
            shutil.rmtree(root)
        root.mkdir()
    if processes is not None:
        sync_global_devices("pytree folder made")


def _join_stores(root: Path, processes: int) -> None:
    """Refer from the checkpoint's store to what the processes' stores hold."""
    ts = tensorstore()
    context = ts.Context()  # only stores of one context refer to each other

    def store(process: int | None) -> Any:
        kvstore = get_tensorstore_spec(root / _ARRAYS / "any", ocdbt=True, process_idx=process)["kvstore"]
        return ts.KvStore.open({k: v for k, v in kvstore.items() if k != "path"}, context=context).result()

    whole = store(None)
    transaction = ts.Transaction()
    copies = [store(i).experimental_copy_range_to(whole.with_transaction(transaction)) for i in range(processes)]
    for copy in copies:
        copy.result()
    transaction.commit_sync()


__dir__ = _listing(__name__)
