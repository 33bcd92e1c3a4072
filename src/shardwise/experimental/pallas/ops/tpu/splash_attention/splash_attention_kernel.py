"""Kernels of attention under a mask that is known when they are made.

In: a mask for each head. Out: a `SplashAttentionKernel`, a function of q f[N, T, H], k f[K, S, H] and v f[K, S, V] (of f[S, H] and f[S, V]
where all heads share one) that gives f[N, T, V]; N is a multiple of K. Queries are not scaled: do so before.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import register_pytree_node_class
from shardwise.experimental.pallas.ops.tpu.kernel_costs import Blocks, backward_kernel, forward_kernel
from shardwise.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask, MultiHeadMask, NumpyMask
from shardwise.ir import Array
from shardwise.nn.attention_kernels import Operands, Options, attend_by_kernels
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.sharding import NamedSharding, PartitionSpec

__all__ = [
    "DEFAULT_MASK_VALUE",
    "BlockSizes",
    "QKVLayout",
    "SegmentIds",
    "SplashAttentionKernel",
    "make_masked_mha_reference",
    "make_masked_mqa_reference",
    "make_splash_mha",
    "make_splash_mha_single_device",
    "make_splash_mqa",
    "make_splash_mqa_single_device",
]

DEFAULT_MASK_VALUE = -0.7 * float(np.finfo(np.float32).max)
_LANES = 128


class SegmentIds(NamedTuple):
    """Numbers of segments: a query attends to the keys of its own segment.

    Attributes:
        q: int[T].
        kv: int[S].
    """

    q: Any
    kv: Any


class QKVLayout(enum.IntEnum):
    """The order of the last two dims in a TPU's memory; results do not depend on it."""

    HEAD_DIM_MINOR = enum.auto()
    SEQ_MINOR = enum.auto()


@dataclass(frozen=True)
class BlockSizes:
    """Rows of blocks, by which a plan counts the steps of the kernels; results do not depend on them.

    ValueError for blocks of a kernel for queries where one kernel makes all derivatives (`use_fused_bwd_kernel`).
    """

    block_q: int
    block_kv: int
    block_kv_compute: int | None = None
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_kv_dkv_compute: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None
    use_fused_bwd_kernel: bool = False
    q_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    k_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    v_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR

    def __post_init__(self) -> None:
        if self.block_kv_compute is None:
            object.__setattr__(self, "block_kv_compute", self.block_kv)
        if self.block_kv_dkv_compute is None:
            object.__setattr__(self, "block_kv_dkv_compute", self.block_kv_dkv)
        if self.use_fused_bwd_kernel and (self.block_q_dq is not None or self.block_kv_dq is not None):
            raise ValueError("Block sizes for dq kernel are not needed with a fused kernel. Leave them out.")

    @property
    def has_backward_blocks(self) -> bool:
        """Whether all blocks of the backward pass are given."""
        needed_sizes = [self.block_q_dkv, self.block_kv_dkv, self.block_kv_dkv_compute]
        if not self.use_fused_bwd_kernel:
            needed_sizes += [self.block_q_dq, self.block_kv_dq]
        return None not in needed_sizes

    @classmethod
    def get_default(cls) -> BlockSizes:
        """Blocks of 128."""
        return cls(128, 128, 128, 128, 128, 128, 128, 128)


@dataclass(frozen=True)
class _Settings:
    """The arguments of a kernel's constructor.

    Attributes:
        within: the mask of all heads where it follows from positions; None where it is an array.
        shape: (heads, queries, keys).
        part: of the blocks that have something to compute.
    """

    within: Mask | None
    shape: tuple[int, ...]
    part: float
    block_sizes: BlockSizes
    is_mqa: bool
    save_residuals: bool
    mask_value: float
    attn_logits_soft_cap: float | None
    residual_checkpoint_name: str | None


@register_pytree_node_class
class SplashAttentionKernel:
    """A kernel; `make_splash_mha` and its kin make them. As an argument of a function it is a tree of the arrays of its mask.

    Attributes:
        rows: int32[T]: the positions of the queries; None where the mask is an array.
        table: bool[N, T, S]: the mask, of one head where all have the same; None where it follows from positions.
    """

    def __init__(self, rows: Any, table: Any, settings: _Settings) -> None:
        self.rows = rows
        self.table = table
        self._settings = settings

    def __call__(self, q: Any, k: Any, v: Any, segment_ids: SegmentIds | None = None, sinks: Any = None) -> Any:
        """Means of the values, f[N, T, V]; with `save_residuals` also ``(log-sum-exp f32[N, T],)``.

        Args:
            q, k, v: queries, keys and values.
            segment_ids: which queries attend to which keys, besides the mask.
            sinks: f[N]: a product more per query and head, which weighs nothing.

        Raises:
            ValueError: shapes that do not fit each other or the mask; in a backward pass, no blocks for it.
            NotImplementedError: a derivative of a kernel with `save_residuals`.
        """
        settings = self._settings
        q, k, v = (as_array(as_value(x)) for x in (q, k, v))
        _check(settings, q, k, v, segment_ids)
        q = jnp.swapaxes(q, 0, 1)[None]
        k, v = ((x[:, None] if settings.is_mqa else jnp.swapaxes(x, 0, 1))[None] for x in (k, v))
        ids = (None, None) if segment_ids is None else tuple(map(jnp.asarray, segment_ids))
        operands = Operands(q, k, v, None, None if sinks is None else jnp.asarray(sinks), (self.rows, self.table, *ids))
        out, sums = attend_by_kernels(operands, _options(settings, q, k, v))
        out = jnp.swapaxes(out[0], 0, 1)
        return (out, (jnp.swapaxes(sums[0], 0, 1),)) if settings.save_residuals else out

    def manual_sharding_spec(self, sharding: NamedSharding) -> SplashAttentionKernel:
        """The kernel's specs for `shard_map`, of which one device's part attends from its queries and heads to all keys.

        Args:
            sharding: its spec has two entries, for heads and queries.

        Raises:
            ValueError: heads or blocks of queries that it does not split evenly.
        """
        heads, queries = sharding.spec
        count, steps, keys = self._settings.shape
        blocks = self._settings.block_sizes
        try:
            sharding.shard_shape((count, steps // blocks.block_q, keys // blocks.block_kv))
        except ValueError as error:
            raise ValueError(
                f"The sharding must divide the mask blocks evenly between devices: {count} heads and "
                f"{steps // blocks.block_q} blocks of {blocks.block_q} queries over {sharding}."
            ) from error
        of_heads = None if self.table is None or self.table.shape[0] == 1 else heads
        return SplashAttentionKernel(
            None if self.rows is None else PartitionSpec(queries),
            None if self.table is None else PartitionSpec(of_heads, queries),
            self._settings,
        )

    def tree_flatten(self) -> tuple[tuple[Any, Any], _Settings]:
        """The arrays, and the rest."""
        return (self.rows, self.table), self._settings

    @classmethod
    def tree_unflatten(cls, settings: _Settings, arrays: tuple[Any, Any]) -> SplashAttentionKernel:
        """The kernel of `tree_flatten`."""
        return cls(*arrays, settings)


def _options(settings: _Settings, q: Array, k: Array, v: Array) -> Options:
    sizes = settings.block_sizes
    name = f"splash_{'mqa' if settings.is_mqa else 'mha'}"
    forward = forward_kernel(name, q, k, v, Blocks(sizes.block_q, sizes.block_kv), settings.part)
    backward = None
    if sizes.has_backward_blocks:
        blocks = [Blocks(sizes.block_q_dkv or 1, sizes.block_kv_dkv or 1)]
        if not sizes.use_fused_bwd_kernel:
            blocks.append(Blocks(sizes.block_q_dq or 1, sizes.block_kv_dq or 1))
        backward = backward_kernel(f"{name}, backward", q, k, v, blocks, settings.part)
    return Options(
        1.0,
        settings.attn_logits_soft_cap,
        settings.mask_value,
        functools.partial(_allowed_products, settings.within, settings.shape[2], k.shape[2]),
        forward,
        backward,
        settings.residual_checkpoint_name,
        is_final=settings.save_residuals,
    )


def _allowed_products(
    within: Any,
    keys: int,
    groups: int,
    rows: Array | None,
    table: Array | None,
    q_ids: Array | None,
    kv_ids: Array | None,
) -> tuple[Array | None, None]:
    """The products to use, broadcastable to [1, K, N / K, T, S]."""
    mask: Array | None = None
    if rows is not None:
        mask = jnp.asarray(within.mask_function(rows[:, None], jnp.arange(keys)[None, :]))[None, None, None]
    if table is not None:
        heads = table.shape[0]
        mask = table.reshape((1, groups, heads // groups, *table.shape[1:]) if heads > 1 else (1, 1, *table.shape))
    if q_ids is not None and kv_ids is not None:
        same = (q_ids[:, None] == kv_ids[None, :])[None, None, None]
        mask = same if mask is None else mask & same
    return mask, None


def _check(settings: _Settings, q: Array, k: Array, v: Array, ids: SegmentIds | None) -> None:
    rank = 2 if settings.is_mqa else 3
    if k.ndim != rank:
        raise ValueError(
            f"Expected {rank}-dim 'key' tensor for {'MQA' if settings.is_mqa else 'MHA'}. Instead got a {k.ndim}-dim one."
        )
    if k.shape[-1] != q.shape[-1]:
        raise ValueError(f"Expected 'key' head dimension to be: {q.shape[-1]}. Instead got: {k.shape[-1]}.")
    if not settings.is_mqa and q.shape[0] % k.shape[0]:
        raise ValueError(
            f"In MHA, expected number of 'query' heads ({q.shape[0]}) to be a multiple of that of 'key' heads ({k.shape[0]})."
        )
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"Expected 'key' {k.shape} and 'value' {v.shape} to have the same leading dimensions.")
    if k.shape[-2] != settings.shape[2]:
        raise ValueError(f"The mask is for {settings.shape[2]} keys, but there are {k.shape[-2]}.")
    for name, x, steps in () if ids is None else (("q", ids.q, q.shape[1]), ("kv", ids.kv, k.shape[-2])):
        if np.shape(x) != (steps,):
            raise ValueError(f"Invalid shape for {name} segment_ids: {np.shape(x)}. Expected: {(steps,)}")


def _make(
    mask: Any,
    *,
    block_sizes: BlockSizes | None = None,
    is_mqa: bool,
    save_residuals: bool = False,
    mask_value: float = DEFAULT_MASK_VALUE,
    attn_logits_soft_cap: float | None = None,
    downcast_smem_data: bool = True,
    head_shards: int,
    q_seq_shards: int,
    residual_checkpoint_name: str | None = None,
    interpret: bool = False,
) -> SplashAttentionKernel:
    """A kernel for a mask.

    Args:
        mask: a `MultiHeadMask`, or bool[N, T, S].
        block_sizes: how a TPU cuts the arrays; blocks of 128 by default.
        is_mqa: all heads share keys and values.
        save_residuals: calls also give the log-sum-exp of the products, and have no derivatives.
        mask_value: what stands for a product that the mask leaves out.
        attn_logits_soft_cap: products come between it and its negative, by a tanh.
        head_shards, q_seq_shards: over how many devices heads and queries will be split.
        residual_checkpoint_name: the name for `checkpoint_name` of what the backward pass needs.
        downcast_smem_data, interpret: for compilers; they change nothing here.

    Raises:
        ValueError: a mask of other dims, sizes that blocks or shards do not divide, or blocks that are no multiples of 128.
    """
    sizes = block_sizes or BlockSizes.get_default()
    if len(mask.shape) != 3:
        raise ValueError(f"Unexpected mask shape: {mask.shape}. Give (heads, queries, keys).")
    heads, steps, keys = mask.shape
    _check_sizes(sizes, heads, steps, keys, head_shards, q_seq_shards)
    within, rows, table, part = None, None, None, 1.0
    if isinstance(mask, np.ndarray):
        mask = MultiHeadMask([NumpyMask(of_head) for of_head in mask])
    if isinstance(mask, MultiHeadMask):
        first = mask.masks[0]
        one = all(m is first or m == first for m in mask.masks)
        part = float(np.mean([_part(m, sizes) for m in (mask.masks[:1] if one else mask.masks)]))
        if one and hasattr(first, "mask_function"):
            within, rows = first, jnp.asarray(first.q_sequence)  # type: ignore[attr-defined]
        elif not (one and part == 1 and np.asarray(first[:, :]).all()):
            table = jnp.asarray(first[:, :][None] if one else mask[:, :, :])
    else:
        table = as_array(as_value(mask))
        if table.dtype != np.bool_:
            raise ValueError(f"Expected a bool mask, instead got: {table.dtype}.")
    settings = _Settings(
        within, (heads, steps, keys), part, sizes, is_mqa, save_residuals, float(mask_value),
        None if attn_logits_soft_cap is None else float(attn_logits_soft_cap), residual_checkpoint_name,
    )  # fmt: skip
    return SplashAttentionKernel(rows, table, settings)


def _check_sizes(sizes: BlockSizes, heads: int, steps: int, keys: int, head_shards: int, q_seq_shards: int) -> None:
    compute = sizes.block_kv_compute or sizes.block_kv
    if sizes.block_kv % compute:
        raise ValueError(f"bkv={sizes.block_kv} must be a multiple of bkv_compute={compute}.")
    if compute % _LANES:
        raise ValueError(f"bkv_compute={compute} must be a multiple of {_LANES}.")
    for what, number, of, size in (
        ("q_block_size", sizes.block_q, "q_seq_len", steps),
        ("kv_block_size", sizes.block_kv, "kv_seq_len", keys),
        ("head_shards", head_shards, "head_count", heads),
        ("q_seq_shards", q_seq_shards, "q_seq_len", steps),
        ("q_block_size", sizes.block_q, "q_seq_len_per_shard", steps // max(q_seq_shards, 1)),
    ):
        if number < 1 or size % number:
            raise ValueError(f"{what}={number} should divide {of}={size}.")


def _part(mask: Mask, sizes: BlockSizes) -> float:
    """The part of the blocks in which there is something to compute, by the corners of each."""
    steps, keys = mask.shape
    at = [
        np.unique([*range(0, n, b), *range(b - 1, n, b)]) for n, b in ((steps, sizes.block_q), (keys, sizes.block_kv))
    ]
    within: Any = getattr(mask, "mask_function", None)
    if within is None:
        whole = np.asarray(mask[:, :])
    else:
        whole = np.broadcast_to(np.asarray(within(at[0][:, None], at[1][None, :])), (len(at[0]), len(at[1])))
    rows, columns = -(-steps // sizes.block_q), -(-keys // sizes.block_kv)
    blocks = whole.reshape(rows, whole.shape[0] // rows, columns, whole.shape[1] // columns)
    return float(blocks.any((1, 3)).mean())


make_splash_mha = functools.partial(_make, is_mqa=False)
make_splash_mqa = functools.partial(_make, is_mqa=True)
make_splash_mha_single_device = functools.partial(_make, is_mqa=False, head_shards=1, q_seq_shards=1)
make_splash_mqa_single_device = functools.partial(_make, is_mqa=True, head_shards=1, q_seq_shards=1)


def _make_reference(mask: Any, is_mqa: bool, backward_impl: str = "vanilla") -> Callable[..., Any]:
    """The function of a kernel, computed in float32. `backward_impl` names JAX's formulas of the derivatives, which agree."""
    if backward_impl not in ("vanilla", "flash", "custom", "custom_vanilla"):
        raise ValueError(f"backward_impl is {backward_impl!r}; expected 'vanilla', 'custom' or 'custom_vanilla'.")
    table = jnp.asarray(mask[:, :, :])

    def reference(
        q: Any,
        k: Any,
        v: Any,
        segment_ids: SegmentIds | None = None,
        sinks: Any = None,
        *,
        mask_value: float = DEFAULT_MASK_VALUE,
        save_residuals: bool = False,
        attn_logits_soft_cap: float | None = None,
    ) -> Any:
        settings = _Settings(
            None,
            table.shape,
            1.0,
            BlockSizes.get_default(),
            is_mqa,
            save_residuals,
            mask_value,
            attn_logits_soft_cap,
            None,
        )
        q, k, v = (jnp.asarray(x).astype(np.float32) for x in (q, k, v))
        return SplashAttentionKernel(None, table, settings)(q, k, v, segment_ids, sinks)

    return reference


make_masked_mha_reference = functools.partial(_make_reference, is_mqa=False)
make_masked_mqa_reference = functools.partial(_make_reference, is_mqa=True)


__dir__ = _listing(__name__)
