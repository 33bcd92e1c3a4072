"""Masks of attention: which of the keys each query attends to.

In: numbers of queries and keys. Out: `Mask`s, of which any part can be computed (``mask[0:128, 256:512]``), and masks as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.listing import listing as _listing

__all__ = [
    "CausalMask",
    "ChunkedCausalMask",
    "FullMask",
    "LocalMask",
    "LogicalAnd",
    "LogicalOr",
    "Mask",
    "MultiHeadMask",
    "NumpyMask",
    "make_causal_mask",
    "make_chunk_attention_mask",
    "make_local_attention_mask",
    "make_random_mask",
]

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Shape = tuple[int, int]
_Within = Callable[[Any, Any], Any]


class Mask:
    """A mask of `shape` (queries, keys); ``mask[rows, columns]`` computes a part of it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(queries, keys), with heads before them where there is one for each."""
        raise NotImplementedError(f"{type(self).__name__}.shape is not defined. Define it in the subclass.")

    def __getitem__(self, idx: Any) -> Bools:
        raise NotImplementedError(f"{type(self).__name__} computes no part. Define __getitem__ in the subclass.")

    def __bool__(self) -> bool:
        raise NotImplementedError(
            "A mask is neither true nor false. Combine masks with & and |, not with `and` and `or`."
        )

    def __or__(self, other: Mask) -> Mask:
        return LogicalOr(self, other)

    def __and__(self, other: Mask) -> Mask:
        return LogicalAnd(self, other)


class _Both(Mask):
    """Two masks of one shape. ValueError for others."""

    def __init__(self, left: Mask, right: Mask) -> None:
        if left.shape != right.shape:
            raise ValueError(f"Masks must have the same shape, but have {left.shape} and {right.shape}.")
        self.left = left
        self.right = right

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.left, self.right) == (other.left, other.right)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), self.left, self.right))


class LogicalOr(_Both):
    """Keys that one of two masks allows."""

    def __getitem__(self, idx: Any) -> Bools:
        return self.left[idx] | self.right[idx]


class LogicalAnd(_Both):
    """Keys that two masks allow."""

    def __getitem__(self, idx: Any) -> Bools:
        return self.left[idx] & self.right[idx]


class MultiHeadMask(Mask):
    """A mask for each head, all of one shape. ValueError for none, for others, and for masks that have heads themselves."""

    def __init__(self, masks: Sequence[Any]) -> None:
        if not masks:
            raise ValueError("Unsupported empty tuple of masks. Give one mask per head.")
        if not all(isinstance(mask, Mask) for mask in masks):
            raise ValueError(f"masks should be of type Mask, but are {sorted({type(m).__name__ for m in masks})}.")
        if any(isinstance(mask, MultiHeadMask) for mask in masks):
            raise ValueError("Nesting MultiHeadMasks is not supported. Join their masks.")
        shapes = list(dict.fromkeys(mask.shape for mask in masks))
        if len(shapes) > 1:
            raise ValueError(f"Unexpected mask shape, got: {shapes[1]}, expected: {shapes[0]}")
        self.masks: Sequence[Mask] = masks

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.masks), *self.masks[0].shape)

    def __getitem__(self, idx: Any) -> Bools:
        if len(idx) != 3:
            raise NotImplementedError(f"Unsupported slice: {idx}. Give heads, queries and keys.")
        head, *rest = idx
        if isinstance(head, int):
            return self.masks[head][tuple(rest)]
        return np.stack([mask[tuple(rest)] for mask in self.masks[head]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MultiHeadMask) and tuple(self.masks) == tuple(other.masks)

    def __hash__(self) -> int:
        return hash((type(self), *self.masks))


class _ComputableMask(Mask):
    """A mask that follows from the positions of query and key.

    Args:
        shape: (queries, keys).
        mask_function: ``(rows [T, 1], columns [1, S]) -> bool [T, S]``.
        shard_count: over how many devices the queries are split; its square divides their number, else ValueError.
        facts: by which masks of a kind are equal.
    """

    def __init__(self, shape: Shape, mask_function: _Within, shard_count: int, facts: tuple[Any, ...]) -> None:
        if shape[0] % (shard_count * shard_count):
            raise ValueError(
                f"Shard count squared ({shard_count * shard_count}) must divide Q seq_len ({shape[0]}) evenly."
            )
        self._shape = shape
        self._facts = facts
        self.mask_function = mask_function
        self.q_sequence = np.arange(shape[0], dtype=np.int32)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, idx: Any) -> Bools:
        rows, columns = _slices(idx, self._shape)
        return np.asarray(
            self.mask_function(self.q_sequence[rows][:, None], np.arange(columns.start, columns.stop)[None, :])
        )

    def _key(self) -> tuple[Any, ...]:
        return (type(self), self._shape, *self._facts, self.q_sequence.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ComputableMask) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


class CausalMask(_ComputableMask):
    """Query t attends to keys up to ``t + offset``."""

    def __init__(self, shape: Shape, offset: int = 0, shard_count: int = 1) -> None:
        self.offset = offset
        super().__init__(shape, lambda q, kv: q + offset >= kv, shard_count, (offset,))


class ChunkedCausalMask(_ComputableMask):
    """Query t attends to keys up to t of its own chunk of `chunk_size` positions. ValueError if that is not positive."""

    def __init__(self, shape: Shape, chunk_size: int, shard_count: int = 1) -> None:
        _check_chunk(chunk_size)
        self.chunk_size = chunk_size
        super().__init__(
            shape, lambda q, kv: (q // chunk_size == kv // chunk_size) & (q >= kv), shard_count, (chunk_size,)
        )


class LocalMask(_ComputableMask):
    """Query t attends to keys from ``t + offset - left`` to ``t + offset + right``; None: as far as there are any."""

    def __init__(
        self, shape: Shape, window_size: tuple[int | None, int | None], offset: int, shard_count: int = 1
    ) -> None:
        self.window_size = window_size
        self.offset = offset
        left, right = window_size

        def within(q: Any, kv: Any) -> Any:
            near = (q == q) & (kv == kv)
            near = near if left is None else near & (q + offset - left <= kv)
            return near if right is None else near & (q + offset + right >= kv)

        super().__init__(shape, within, shard_count, (tuple(window_size), offset))


class NumpyMask(Mask):
    """A mask given as bool[T, S]; ValueError for other arrays."""

    def __init__(self, array: Bools) -> None:
        if array.ndim != 2:
            raise ValueError(f"Expected a 2-dim array, got one of {array.ndim} dims.")
        if array.dtype != np.bool_:
            raise ValueError(f"Mask must be a boolean array, got {array.dtype}.")
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __getitem__(self, idx: Any) -> Bools:
        return self.array[idx]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumpyMask) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((type(self), self.array.tobytes()))


class FullMask(Mask):
    """Each query attends to all keys. ValueError for a `shape` that is no tuple."""

    def __init__(self, _shape: Any) -> None:
        if not isinstance(_shape, tuple):
            raise ValueError(f"Unsupported shape type: {type(_shape)}. Give a tuple of queries and keys.")
        self._shape: Shape = _shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, idx: Any) -> Bools:
        rows, columns = _slices(idx, self._shape)
        return np.ones((rows.stop - rows.start, columns.stop - columns.start), np.bool_)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FullMask) and self._shape == other._shape

    def __hash__(self) -> int:
        return hash((type(self), self._shape))


def make_causal_mask(shape: Shape, offset: int = 0) -> Bools:
    """`CausalMask` as bool[T, S]."""
    return CausalMask(shape, offset)[:, :]


def make_local_attention_mask(shape: Shape, window_size: tuple[int | None, int | None], *, offset: int = 0) -> Bools:
    """`LocalMask` as bool[T, S]."""
    return LocalMask(shape, window_size, offset)[:, :]


def make_chunk_attention_mask(shape: Shape, chunk_size: int) -> Bools:
    """`ChunkedCausalMask` as bool[T, S]. ValueError if `chunk_size` is not positive."""
    return ChunkedCausalMask(shape, chunk_size)[:, :]


def make_random_mask(shape: Shape, sparsity: float, seed: int) -> Bools:
    """bool[T, S] of which a part of `sparsity` is False: NumPy's numbers, whose global state it seeds as JAX does."""
    np.random.seed(seed)
    return np.random.binomial(n=1, p=1.0 - sparsity, size=shape).astype(np.bool_)


def _check_chunk(size: int) -> None:
    if size <= 0:
        raise ValueError(f"chunk_size must be positive, got {size}.")


def _slices(idx: Any, shape: Shape) -> tuple[slice, slice]:
    """The rows and columns of a part, with begin and end. NotImplementedError for anything but two slices without steps."""
    if len(idx) != 2 or not all(isinstance(i, slice) and i.step in (None, 1) for i in idx):
        raise NotImplementedError(f"Unsupported slice: {idx}. Give a slice of queries and one of keys, without steps.")
    rows, columns = (
        slice(0 if i.start is None else i.start, n if i.stop is None else min(i.stop, n))
        for i, n in zip(idx, shape, strict=True)
    )
    return rows, columns


__dir__ = _listing(__name__)
