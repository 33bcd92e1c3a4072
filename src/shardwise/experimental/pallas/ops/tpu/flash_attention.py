"""`flash_attention`: softmax of products of queries and keys, times values, as one kernel on a TPU.

In: f[B, N, T, H] and f[B, N, S, H]. Out: f[B, N, T, H].
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.experimental.pallas.ops.tpu.kernel_costs import Blocks, backward_kernel, forward_kernel
from shardwise.ir import Array
from shardwise.nn.attention_kernels import Operands, Options, attend_by_kernels
from shardwise.ops.rules.convert import as_array, as_value

__all__ = ["DEFAULT_MASK_VALUE", "BlockSizes", "SegmentIds", "flash_attention"]

DEFAULT_MASK_VALUE = -0.7 * float(np.finfo(np.float32).max)


class SegmentIds(NamedTuple):
    """Numbers of segments: a query attends to the keys of its own segment.

    Attributes:
        q: int[B, T].
        kv: int[B, S].
    """

    q: Any
    kv: Any


@dataclass(frozen=True)
class BlockSizes:
    """Rows of blocks, by which a plan counts the steps of the kernels; results do not depend on them.

    A block of keys is computed in parts (`block_k` of `block_k_major`), of which it is a multiple: ValueError otherwise.
    """

    block_q: int
    block_k_major: int
    block_k: int
    block_b: int
    block_q_major_dkv: int | None = None
    block_k_major_dkv: int | None = None
    block_k_dkv: int | None = None
    block_q_dkv: int | None = None
    block_k_major_dq: int | None = None
    block_k_dq: int | None = None
    block_q_dq: int | None = None

    def __post_init__(self) -> None:
        for major, minor in (
            ("block_k_major", "block_k"),
            ("block_q_major_dkv", "block_q_dkv"),
            ("block_k_major_dkv", "block_k_dkv"),
            ("block_k_major_dq", "block_k_dq"),
        ):
            whole, part = getattr(self, major), getattr(self, minor)
            if whole is None or part is None:
                continue
            if part > whole:
                raise ValueError(f"{minor}={part} should be smaller than {major}={whole}")
            if whole % part:
                raise ValueError(f"{minor}={part} should divide {major}={whole}")

    @property
    def has_backward_blocks(self) -> bool:
        """Whether all blocks of the backward pass are given."""
        return all(getattr(self, f.name) is not None for f in dataclasses.fields(self))

    @classmethod
    def get_default(cls, batch_size: int, num_heads: int, q_seq_len: int, kv_len: int, d_model: int) -> BlockSizes:
        """Blocks of 128, whatever `batch_size`, `num_heads`, `q_seq_len`, `kv_len` and `d_model` are."""
        return cls(128, 128, 128, 1, 128, 128, 128, 128, 128, 128, 128)


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    ab: Any = None,
    segment_ids: SegmentIds | None = None,
    *,
    causal: bool = False,
    sm_scale: float = 1.0,
    block_sizes: BlockSizes | None = None,
    debug: bool = False,
) -> Array:
    """``softmax((q @ k.T + ab) * sm_scale) @ v`` for each head.

    Args:
        q, k, v: f[B, N, T, H], f[B, N, S, H], f[B, N, S, H].
        ab: f[B, N, T, S], added to the products.
        segment_ids: which queries attend to which keys.
        causal: query t attends to keys up to t only.
        sm_scale: a factor of the products with `ab` added.
        block_sizes: how a TPU cuts the arrays; blocks of 128 by default.
        debug: changes nothing here: there is no compiler to look into.

    Raises:
        ValueError: shapes that do not fit, or a derivative where `block_sizes` has no blocks for it.

    >>> x = jnp.ones((1, 2, 8, 4))
    >>> flash_attention(x, x, x, causal=True).shape
    (1, 2, 8, 4)
    """
    q, k, v = (as_array(as_value(x)) for x in (q, k, v))
    ab = None if ab is None else as_array(as_value(ab))
    _check(q, k, v, ab, segment_ids)
    (batch, heads, steps, size), keys = q.shape, k.shape[2]
    sizes = block_sizes or BlockSizes.get_default(batch, heads, steps, keys, size)
    part = _part(steps, keys, causal, sizes)
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    backward = None
    if sizes.has_backward_blocks:
        for_keys = Blocks(sizes.block_q_major_dkv or 1, sizes.block_k_major_dkv or 1)
        for_queries = Blocks(sizes.block_q_dq or 1, sizes.block_k_major_dq or 1)
        backward = backward_kernel("flash_attention, backward", q, k, v, (for_keys, for_queries), part)
    options = Options(
        float(sm_scale), None, DEFAULT_MASK_VALUE, functools.partial(_allowed_products, steps, keys, causal),
        forward_kernel("flash_attention", q, k, v, Blocks(sizes.block_q, sizes.block_k_major), part),
        backward,
        scales_bias=True,
    )  # fmt: skip
    ids = () if segment_ids is None else tuple(segment_ids)
    out, _ = attend_by_kernels(Operands(q, k, v, ab, None, ids), options)
    return jnp.swapaxes(out, 1, 2)


def _check(q: Array, k: Array, v: Array, ab: Array | None, ids: SegmentIds | None) -> None:
    for name, of, d in (("Batch size", (q, k, v), 0), ("Head count", (q, k, v), 1), ("Model dimension", (q, k), 3)):
        sizes = [x.shape[d] for x in of]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"{name} mismatch: got {', '.join(map(str, sizes))} for q, k{', v' if len(of) > 2 else ''}."
            )
    if q.shape[3] != v.shape[3]:
        raise NotImplementedError(
            "V model dimension unequal to KV model dimension unsupported. Pad v, or use splash_attention."
        )
    if k.shape[2] != v.shape[2]:
        raise ValueError(f"KV sequence length mismatch: got {k.shape[2]} and {v.shape[2]}")
    bias_shape = (*q.shape[:3], k.shape[2])
    if ab is not None and ab.shape != bias_shape:
        raise ValueError(f"Attention bias shape mismatch: expected {bias_shape}, got {ab.shape}")
    for name, x, steps in () if ids is None else (("Q", ids.q, q.shape[2]), ("KV", ids.kv, k.shape[2])):
        if np.shape(x) != (q.shape[0], steps):
            raise ValueError(f"{name} segment ids shape mismatch: expected {(q.shape[0], steps)}, got {np.shape(x)}")


def _allowed_products(steps: int, keys: int, causal: bool, *ids: Any) -> tuple[Array | None, None]:
    mask = None
    if causal:
        row = lax.broadcasted_iota(np.int32, (1, 1, 1, steps, 1), 3)
        mask = lax.broadcasted_iota(np.int32, (1, 1, 1, 1, keys), 4) <= row
    if ids:
        q, kv = (jnp.asarray(x) for x in ids)
        same = q[:, None, None, :, None] == kv[:, None, None, None, :]
        mask = same if mask is None else mask & same
    return mask, None


def _part(steps: int, keys: int, causal: bool, sizes: BlockSizes) -> float:
    """The part of the blocks that has keys which a query attends to."""
    if not causal or not steps or not keys:
        return 1.0
    last = np.minimum(np.arange(sizes.block_q, steps + sizes.block_q, sizes.block_q), steps)
    return float(np.minimum(np.ceil(last / sizes.block_k_major) * sizes.block_k_major, keys).mean()) / keys


__dir__ = _listing(__name__)
