"""The methods of arrays, for checkers alone: `shardwise.numpy.operators` sets them on `Array` when the first one is used.

Each is the function that implements it, so that there is one signature. Never imported at run time.
"""

from __future__ import annotations

from typing import Any, NoReturn

from shardwise.engine.shards import Shard
from shardwise.ir import Array
from shardwise.numpy import (
    cumulative,
    diagonals,
    indexing,
    means,
    operators,
    products,
    rearranging,
    reductions,
    selection,
    shapes,
    sorting_search,
    unary,
)
from shardwise.numpy.at import IndexUpdateHelper
from shardwise.sharding import Device, Sharding


class ArrayMethods:
    """The members of an `Array` beside its type and Python's operators."""

    __slots__ = ()

    all = reductions.all
    any = reductions.any
    argmax = reductions.argmax
    argmin = reductions.argmin
    argpartition = sorting_search.argpartition
    argsort = sorting_search.argsort
    choose = selection.choose
    conj = unary.conjugate
    conjugate = unary.conjugate
    cumprod = cumulative.cumprod
    cumsum = cumulative.cumsum
    diagonal = diagonals.diagonal
    dot = products.dot
    max = reductions.max
    mean = means.mean
    min = reductions.min
    nonzero = selection.nonzero
    prod = reductions.prod
    ptp = reductions.ptp
    repeat = rearranging.repeat
    round = unary.round
    searchsorted = sorting_search.searchsorted
    sort = sorting_search.sort
    squeeze = shapes.squeeze
    std = means.std
    sum = reductions.sum
    swapaxes = shapes.swapaxes
    take = indexing.take
    trace = diagonals.trace
    var = means.var
    reshape = operators._reshape
    transpose = operators._transpose
    flatten = operators._flatten
    ravel = operators._flatten
    astype = operators._astype
    copy = operators._copy
    compress = operators._compress
    view = operators._view
    to_device = operators._to_device
    byteswap = operators._byteswap

    @property
    def T(self) -> Array: ...
    @property
    def mT(self) -> Array: ...
    @property
    def real(self) -> Array: ...
    @property
    def imag(self) -> Array: ...
    @property
    def flat(self) -> NoReturn: ...
    @property
    def at(self) -> IndexUpdateHelper: ...

    # Checkers take no function as a method whose first parameter has a default.
    def clip(
        self, min: Any = None, max: Any = None, *, a: Any = None, a_min: Any = None, a_max: Any = None
    ) -> Array: ...

    # Of concrete arrays: traced ones raise for these.

    @property
    def sharding(self) -> Sharding: ...
    @property
    def committed(self) -> bool: ...
    @property
    def device(self) -> Device | Sharding: ...
    @property
    def is_fully_addressable(self) -> bool: ...
    @property
    def is_fully_replicated(self) -> bool: ...
    @property
    def global_shards(self) -> list[Shard]: ...
    @property
    def addressable_shards(self) -> list[Shard]: ...
    @property
    def format(self) -> Any: ...
    def addressable_data(self, index: int) -> Array: ...
    def devices(self) -> set[Device]: ...
    def block_until_ready(self) -> Array: ...
    def is_ready(self) -> bool: ...
    def is_deleted(self) -> bool: ...
    def delete(self) -> None: ...
    def copy_to_host_async(self) -> None: ...
    def on_device_size_in_bytes(self) -> int: ...
    def unsafe_buffer_pointer(self) -> int: ...
    def item(self, *args: int) -> Any: ...
    def tolist(self) -> Any: ...
    def tobytes(self, order: Any = "C") -> bytes: ...
