"""`Entry`: a compiled call for one list of leaf signatures, and the donated leaves whose buffers its results can take."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import float0
from shardwise.base.tree import PyTreeDef, treedef_is_leaf
from shardwise.engine.array import ArrayImpl, from_literal
from shardwise.engine.executable import Executable
from shardwise.engine.ordered import in_order
from shardwise.engine.signature import Signature
from shardwise.ir import Literal, Program
from shardwise.sharding import Sharding
from shardwise.transforms.jit.jit_shardings import with_signature
from shardwise.transforms.tracing import check_donation


class Entry:
    """A compiled call for one list of leaf signatures; `call(leaves)` runs it and returns the result tree."""

    __slots__ = (
        "__weakref__",
        "_elsewhere",
        "_finished",
        "_given",
        "_hostly",
        "_plain",
        "_several",
        "_unflatten",
        "call",
        "consts",
        "donated",
        "executable",
        "kept",
        "orders",
        "out_tree",
        "placed",
        "program",
        "wanted",
    )

    def __init__(
        self,
        executable: Executable,
        consts: list[Any],
        kept: list[int],
        placed: list[tuple[int, Signature]],
        donated: list[tuple[int, bool]],
        out_tree: PyTreeDef,
        leaves: int,
        program: Program,
        wanted: Sequence[Sharding | None],
        orders: Sequence[tuple[int, ...] | None] | None = None,
    ) -> None:
        self.executable = executable
        self.orders = orders  # of the results' dims in memory, where some are not the default
        self.program = program  # the traced program
        self.wanted = tuple(wanted)  # the results' shardings, None if propagation decides
        self.consts = consts
        self.kept = kept  # leaves that the program uses
        self.placed = placed  # (position among the kept, signature) of leaves that enter under another signature
        self.donated = donated  # (leaf, whether the call deletes it)
        self.out_tree = out_tree
        self._given = [i for i, _ in donated]
        self._elsewhere = self.elsewhere([k for k, _ in placed])
        unflatten: Callable[[Sequence[Any]], Any] = out_tree.spec.unflatten
        self._hostly = any(s.aval.dtype == float0 for s in executable.out_sigs)
        if self._hostly:
            unflatten = _with_host_zeros(unflatten)
        if orders is not None:
            unflatten = _in_orders(unflatten, orders)
        self._unflatten = unflatten
        self._plain = not (consts or placed or self._elsewhere) and kept == list(range(leaves))
        self._several = leaves > 1
        self._finished = False
        self.call: Callable[[Sequence[Any]], Any] = _first_call(weakref.ref(self))

    def finish(self) -> None:
        """Finish the executable, and write `call` for it. Does nothing the second time.

        `call` does not hold the entry, so that arrays that the function closes over are freed with the last reference to the function.
        """
        if self._finished:
            return
        self._finished = True
        executable, unflatten = self.executable, self._unflatten
        executable.finish()
        if config.jax_log_compiles:
            import logging  # start-up time

            took = sum(executable.seconds.values()) * 1e3
            logging.getLogger("shardwise").warning(f"Compiled {executable.name} in {took:.1f} ms")
        run = executable.call
        if not self._plain:
            self.call = self._general()
            return
        if treedef_is_leaf(self.out_tree) and self.out_tree.num_leaves and not self._hostly and self.orders is None:
            call = executable.single()
        else:
            call = lambda leaves: unflatten(run(leaves))  # noqa: E731
        self.call = _check_donations(call, self._given) if self._given and self._several else call

    def _general(self) -> Callable[[Sequence[Any]], Any]:
        """The call where leaves are not all that the program takes, as they are."""
        run, unflatten, consts = self.executable.call, self._unflatten, self.consts
        kept_inputs, placed_inputs, donated_inputs, elsewhere = self.kept, self.placed, self._given, self._elsewhere

        def call(leaves: Sequence[Any]) -> Any:
            if donated_inputs and len({*map(id, leaves)}) != len(leaves):
                check_donation(leaves, donated_inputs)
            args = [leaves[i] for i in kept_inputs]
            for i, sig in placed_inputs:
                args[i] = with_signature(as_array_impl(args[i]), sig)
            outs = run([*consts, *args] if consts else args)
            for i in elsewhere:
                if isinstance(leaves[i], ArrayImpl):
                    leaves[i].delete()
            return unflatten(outs)

        return call

    def elsewhere(self, moved: Sequence[int]) -> list[int]:
        """Leaves to delete that the program's call does not delete, because it gets them under another signature (`moved`, positions
        among the kept leaves).
        """
        direct = {leaf for k, leaf in enumerate(self.kept) if k not in moved}
        return [i for i, is_deleted in self.donated if is_deleted and i not in direct]


def _first_call(entry: weakref.ref[Entry]) -> Callable[[Sequence[Any]], Any]:
    """The first call of an entry, which its caller holds: finish it, and call it."""

    def call(leaves: Sequence[Any]) -> Any:
        own_entry = entry()
        assert own_entry is not None
        own_entry.finish()
        return own_entry.call(leaves)

    return call


def _check_donations(call: Callable[[Sequence[Any]], Any], given: Sequence[int]) -> Callable[[Sequence[Any]], Any]:
    """`call` of several leaves, preceded by a check that no array of those `given` away occurs twice."""

    def checked_call(leaves: Sequence[Any]) -> Any:
        if len({*map(id, leaves)}) != len(leaves):
            check_donation(leaves, given)
        return call(leaves)

    return checked_call


def _in_orders(
    unflatten: Callable[[Sequence[Any]], Any], orders: Sequence[tuple[int, ...] | None]
) -> Callable[[Sequence[Any]], Any]:
    """`unflatten`, preceded by copies of results into the orders of dims asked for."""
    return lambda outs: unflatten([in_order(x, order) for x, order in zip(outs, orders, strict=True)])


def _with_host_zeros(unflatten: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """`unflatten`, preceded by a conversion of tangents of integers to NumPy arrays of float0, the form that users see."""
    return lambda outs: unflatten([np.zeros(x.shape, float0) if x.dtype == float0 else x for x in outs])


def as_array_impl(x: Any) -> ArrayImpl:
    """A leaf as a concrete array."""
    return from_literal(x) if isinstance(x, Literal) else x


class _Shard(NamedTuple):
    """A value on its devices: the shape of a part, the number of elements of the whole, and their type."""

    shape: tuple[int, ...]
    size: int
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


_Match = Callable[[_Shard, _Shard], bool]


def usable_donations(
    leaves: Sequence[Any],
    donated: Sequence[int],
    sigs: Sequence[Signature],
    placed: Sequence[Signature],
    entering: Mapping[int, tuple[int, ...]],
    outs: Sequence[Signature],
    many: bool,
    placed_by_user: bool,
) -> tuple[list[tuple[int, bool]], str]:
    """For each donated leaf, whether the call deletes it, and a warning for leaves whose buffers no output takes (each output takes one).

    `sigs` are the signatures of the leaves, `placed` those under which they enter the program, and `entering` the shapes of the shards
    of those that it uses. A leaf is deleted if an output takes its buffer, but not if it is copied to other shards first. On several
    devices (`many`) the bytes of the shards must be equal, where a leaf that the program may lay out counts as whole, and there is no
    warning if propagation chose the outputs' layouts. On one device the dialect requires the same shape and dtype, or the same number
    of elements and bytes.
    """
    free = [_Shard(_shard_shape(s), s.aval.size, s.aval.dtype) for s in outs]
    given: dict[int, _Shard] = {}
    for i in [i for i in donated if i in entering]:
        aval = sigs[i].aval
        given[i] = _Shard(entering[i] if placed[i].committed else aval.shape, aval.size, aval.dtype)
    takers: set[int] = set()
    any_shape = config.dialect.jit.donates_equal_bytes
    same_size: _Match = _same_bytes if many else _same_elements
    for same in (_same_shard, same_size) if many or any_shape else (_same_shard,):
        for i, shard in given.items():
            taker = next((s for s in free if i not in takers and same(s, shard)), None)
            if taker is not None:
                free.remove(taker)
                takers.add(i)
    unusable_shards = []
    for i, shard in given.items():
        alike = any_shape and any(s.size == shard.size for s in free)
        silent = not placed_by_user if many else alike
        if i not in takers and not silent and isinstance(leaves[i], ArrayImpl):
            unusable_shards.append(f"{shard.dtype.name}[{','.join(map(str, shard.shape))}]")
    warning = ""
    if unusable_shards:
        warning = (
            f"Some donated buffers were not usable: {', '.join(unusable_shards)}. No output has their shard shape and dtype; they stay "
            "alive."
        )
    there = frozenset(outs[0].devices) if outs else frozenset()
    return [
        (i, i in takers and entering[i] == _shard_shape(sigs[i]) and there.issuperset(sigs[i].devices)) for i in donated
    ], warning


def _shard_shape(sig: Signature) -> tuple[int, ...]:
    if sig.spans:  # this process may own no part
        return sig.sharding.shard_shape(sig.aval.shape)
    return sig.form.block_shape[len(sig.form.block_shape) - sig.aval.ndim :]


def _same_shard(out: _Shard, given: _Shard) -> bool:
    return (out.shape, out.dtype) == (given.shape, given.dtype)


def _same_bytes(out: _Shard, given: _Shard) -> bool:
    return out.nbytes == given.nbytes


def _same_elements(out: _Shard, given: _Shard) -> bool:
    return out.size == given.size and out.nbytes == given.nbytes
