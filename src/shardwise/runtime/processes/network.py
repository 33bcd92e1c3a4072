"""A link through MPI: one call for each exchange, on contiguous memory without copies where the arrays are so already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.runtime.memory import pool
from shardwise.runtime.monoids import MONOIDS
from shardwise.runtime.processes.link import as_bytes, combine_arrays, patiently
from shardwise.runtime.processes.traffic import total_traffic
from shardwise.runtime.strided import strided_view

_SMALL = 1 << 15  # bytes up to which reductions that MPI lacks are done by everybody on everything


class NetworkLink:
    """The processes of one communicator. `crowded`: there are more of them than processors, so that waiting must not be busy."""

    __slots__ = ("_meetings", "_mine", "_native", "_top", "_view", "comm", "crowded", "me", "mpi", "size")

    def __init__(self, mpi: Any, comm: Any, crowded: bool) -> None:
        self.mpi = mpi
        self.comm = comm
        self._meetings = comm.Dup()  # apart from data: who meets never gets what somebody else exchanges
        self.crowded = crowded
        self.me: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self._native: dict[tuple[str, np.dtype[Any]], Any] = {}
        self._mine = np.zeros(2, np.int64)
        self._top = np.zeros(2, np.int64)
        self._view = memoryview(self._top)  # type: ignore[arg-type]  # ndarrays are buffers

    def _call(self, name: str, *arguments: Any) -> None:
        if self.crowded:
            patiently(getattr(self.comm, f"I{name.lower()}")(*arguments).Test)
        else:
            getattr(self.comm, name)(*arguments)

    def meet(self, number: int) -> bool:
        """Wait for all processes; whether all came with this number."""
        mine = self._mine
        mine[0], mine[1] = number, -number
        if self.crowded:
            patiently(self._meetings.Iallreduce(mine, self._top, self.mpi.MAX).Test)
        else:
            self._meetings.Allreduce(mine, self._top, self.mpi.MAX)
        return self._view[0] == number == -self._view[1]

    # -- reductions ------------------------------------------------------------------------------------------------------

    def _reduction(self, kind: str, dtype: np.dtype[Any]) -> Any:
        """MPI's own reduction of that kind, or None where it would differ from NumPy's."""
        key = (kind, dtype)
        if key not in self._native:
            self._native[key] = _native_reduction(self.mpi, kind, dtype)
        return self._native[key]

    def all_reduce(self, x: Ndarray, kind: str, tag: int, *more: Ndarray) -> Ndarray:
        """The reduction of everybody's contiguous `x` and `more` of its kind."""
        if more:
            own = pool.empty(x.shape, x.dtype)
            combine_arrays(MONOIDS[kind].merger(x.dtype), (x, *more), own)
            x = own
        total_traffic.add("all_reduce", 2 * (self.size - 1) * x.nbytes // self.size)
        op = self._reduction(kind, x.dtype)
        if op is not None:
            out = pool.empty(x.shape, x.dtype)
            self._call("Allreduce", x, out, op)
            return out
        if x.nbytes <= _SMALL or x.size < self.size:
            everyone = pool.empty((self.size, *x.shape), x.dtype)
            if x.nbytes:
                self._call("Allgather", as_bytes(x), as_bytes(everyone))
            return _fold_in_order(kind, everyone)
        # Each process reduces one part of everybody's values and tells the result.
        size = -(-x.size // self.size)
        send = pool.empty((self.size, size), x.dtype)
        send.reshape(-1)[: x.size] = x.reshape(-1)
        send.reshape(-1)[x.size :] = x.reshape(-1)[:1]
        taken = pool.empty(send.shape, x.dtype)
        self._call("Alltoall", as_bytes(send), as_bytes(taken))
        part = _fold_in_order(kind, taken)
        self._call("Allgather", as_bytes(part), as_bytes(send))
        return send.reshape(-1)[: x.size].reshape(x.shape)

    def reduce_scatter(self, parts: Sequence[Ndarray], out: Ndarray, kind: str, tag: int) -> None:
        """Into `out` the reduction of everybody's part for this process."""
        total_traffic.add("reduce_scatter", sum(p.nbytes for k, p in enumerate(parts) if k != self.me))
        op = self._reduction(kind, out.dtype)
        send = _pack_parts(parts, out.dtype)
        if op is not None:
            into = out if out.flags.c_contiguous else pool.empty(out.shape, out.dtype)
            self._call("Reduce_scatter", send, into.reshape(-1), [p.size for p in parts], op)
            if into is not out:
                np.copyto(out, into)
            return
        taken = pool.empty((self.size, *out.shape), out.dtype)
        counts = [p.nbytes for p in parts]
        self._call("Alltoallv", (as_bytes(send), counts), (as_bytes(taken), [out.nbytes] * self.size))
        np.copyto(out, _fold_in_order(kind, taken))

    # -- moves -----------------------------------------------------------------------------------------------------------

    def all_gather(self, x: Ndarray, takes: Sequence[Ndarray], tag: int) -> None:
        """Into ``takes[k]`` the `x` of process k."""
        total_traffic.add("all_gather", x.nbytes * (self.size - 1))
        counts = [t.nbytes for t in takes]
        if not sum(counts):
            return
        direct = _in_a_row(takes)
        buffer = pool.empty((sum(counts),), np.uint8) if direct is None else direct
        self._call("Allgatherv", as_bytes(np.ascontiguousarray(x)), (buffer, counts))
        if direct is None:
            at = 0
            for take in takes:
                np.copyto(take, buffer[at : at + take.nbytes].view(take.dtype).reshape(take.shape))
                at += take.nbytes

    def swap(
        self,
        sends: Sequence[tuple[int, Ndarray]],
        takes: Sequence[tuple[int, int, Ndarray]],
        fan: int,
        largest: Sequence[tuple[int, ...]],
        itemsize: int,
        tag: int,
    ) -> None:
        """Messages between pairs of processes."""
        total_traffic.add("exchange", sum(x.nbytes for _, x in sends))
        comm = self.comm
        filled = []
        requests = []
        for source, place, take in takes:
            into = take if take.flags.c_contiguous else pool.empty(take.shape, take.dtype)
            filled.append((take, into))
            if into.nbytes:
                requests.append(comm.Irecv(as_bytes(into), source, place))
        kept = [np.ascontiguousarray(x) for _, x in sends]
        for place, ((target, _), x) in enumerate(zip(sends, kept, strict=True)):
            if x.nbytes:
                requests.append(comm.Isend(as_bytes(x), target, place))
        if self.crowded:
            patiently(lambda: self.mpi.Request.Testall(requests))
        else:
            self.mpi.Request.Waitall(requests)
        for take, into in filled:
            if into is not take:
                np.copyto(take, into)


def _native_reduction(mpi: Any, kind: str, dtype: np.dtype[Any]) -> Any:
    known = dtype.isbuiltin == 1 and dtype.kind in "iufc" and dtype.name not in ("float16", "longdouble", "clongdouble")
    if not known:
        return None
    monoid = MONOIDS[kind]
    return getattr(mpi, monoid.mpi) if dtype.kind in monoid.mpi_kinds else None


def _fold_in_order(kind: str, everyone: Ndarray) -> Ndarray:
    """The reduction along dim 0, in order."""
    out = pool.empty(everyone.shape[1:], everyone.dtype)
    combine_arrays(MONOIDS[kind].merger(out.dtype), list(everyone), out)
    return out


def _pack_parts(parts: Sequence[Ndarray], dtype: np.dtype[Any]) -> Ndarray:
    """The elements of all parts one after the other."""
    direct = _in_a_row(parts)
    if direct is not None:
        return direct.view(dtype)
    out = pool.empty((sum(p.size for p in parts),), dtype)
    at = 0
    for part in parts:
        np.copyto(out[at : at + part.size].reshape(part.shape), part)
        at += part.size
    return out


def _in_a_row(arrays: Sequence[Ndarray]) -> Ndarray | None:
    """The bytes of arrays that lie contiguously one after the other; None if they do not."""
    at = start = arrays[0].__array_interface__["data"][0]
    for x in arrays:
        if not x.flags.c_contiguous or (x.nbytes and x.__array_interface__["data"][0] != at):
            return None
        at += x.nbytes
    first = as_bytes(arrays[0])
    return strided_view(first, (at - start,), (1,))
