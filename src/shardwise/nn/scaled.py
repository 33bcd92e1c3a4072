"""Products of block-scaled matrices: narrow floats with one scale per block of elements along the contracted dim.

In: blocks of 8- or 4-bit floats and their scales. Out: products, accumulated in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise.base.dtypes import as_dtype, check_requested
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array
from shardwise.lax import adaptive as lax


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Array:
    """``lhs @ rhs.T`` of block-scaled matrices: f[B, M, K], f[B, N, K] -> [B, M, N].

    Args:
        lhs_scales: [B, M, K / block]: the factor of each block of `lhs`.
        rhs_scales: [B, N, K / block].
        preferred_element_type: the result's dtype.

    ValueError where ranks or sizes do not fit.

    >>> ones = jnp.ones((1, 2, 32), jnp.bfloat16)
    >>> jax.nn.scaled_matmul(ones, ones, jnp.ones((1, 2, 1), jnp.bfloat16), jnp.full((1, 2, 1), 2, jnp.bfloat16))
    Array([[[64., 64.],
            [64., 64.]]], dtype=float32)
    """
    a, b, a_scales, b_scales = (jnp.asarray(x) for x in (lhs, rhs, lhs_scales, rhs_scales))
    result_dtype = check_requested(preferred_element_type, "scaled_matmul")
    shapes = [x.shape for x in (a, b, a_scales, b_scales)]
    if any(len(s) != 3 for s in shapes):
        raise ValueError(f"scaled_matmul takes 3-dimensional arrays, got shapes {shapes}.")
    if a.shape[::2] != b.shape[::2]:
        raise ValueError(f"scaled_matmul: batch and contracted sizes of lhs {a.shape} and rhs {b.shape} must be equal.")
    if (
        a_scales.shape[::2] != b_scales.shape[::2]
        or a_scales.shape[:2] != a.shape[:2]
        or b_scales.shape[:2] != b.shape[:2]
    ):
        raise ValueError(
            f"scaled_matmul: scales must match their operands but for the contracted dim, got shapes {shapes}."
        )
    if not a_scales.shape[2] or a.shape[2] % a_scales.shape[2]:
        raise ValueError(
            f"scaled_matmul: {a_scales.shape[2]} scales do not divide the contracted size, {a.shape[2]}, in blocks."
        )
    products = lax.dot_general(_apply_scales(a, a_scales), _apply_scales(b, b_scales), (((2,), (2,)), ((0,), (0,))))
    return products.astype(result_dtype)


def _apply_scales(x: Array, scales: Array) -> Array:
    """The values in float32."""
    batch, rows, size = x.shape
    blocks = scales.shape[2]
    values = lax.reshape(x.astype(np.float32), (batch, rows, blocks, size // blocks))
    return lax.reshape(values * lax.expand_dims(scales.astype(np.float32), (3,)), x.shape)


@dataclass(frozen=True)
class BlockScaleConfig:
    """How an operand is quantized in blocks."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """The quantization that the format `mode` stands for: 'nvfp4' or 'mxfp8'. ValueError for others.

    `global_scale`: a factor of all blocks, for 'nvfp4'.

    >>> jax.nn.get_scaled_dot_general_config("mxfp8").mode
    'mxfp8'
    """
    if mode == "nvfp4":
        scale = jnp.ones((1,), np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, as_dtype("float4_e2m1fn"), as_dtype("float8_e4m3fn"), scale, False)
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, as_dtype("float8_e4m3fn"), as_dtype("float8_e8m0fnu"), None, False)
    raise ValueError(f"Unsupported mode: {mode!r}; expected 'nvfp4' or 'mxfp8'.")


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: list[BlockScaleConfig] | None = None,
    implementation: str | None = None,
) -> Array:
    """``lax.dot_general(lhs, rhs, dimension_numbers)`` with a result of `preferred_element_type`, of operands
    quantized in blocks; without `configs` of the operands as they are.

    NotImplementedError for `configs` and for an `implementation` such as 'cudnn', which are for GPUs.

    >>> jax.nn.scaled_dot_general(jnp.ones((2, 4)), jnp.ones((4, 3)), (((1,), (0,)), ((), ()))).shape
    (2, 3)
    """
    if implementation is not None:
        raise NotImplementedError(
            f"scaled_dot_general(implementation={implementation!r}): there is one, for the CPU. Leave it out."
        )
    if configs is not None:
        raise NotImplementedError(
            "scaled_dot_general with configs quantizes on GPUs only. Use scaled_matmul on quantized operands, or no configs."
        )
    return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)
