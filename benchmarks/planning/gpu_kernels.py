"""Programs of one GPU that are mostly one kernel: elementwise work, reductions, products, convolutions, algorithms of their own.

Written once against JAX's API: real JAX runs them on a GPU (`gpu_measure`), and the planner plans them (`gpu`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

BF16, F16, F32, F64 = "bfloat16", "float16", "float32", "float64"
Made = tuple[Callable[..., Any], tuple[Any, ...]]


class Operand(NamedTuple):
    """An argument: normal numbers, or whole numbers from 0 to below `below`; `positive`: a positive definite matrix."""

    shape: tuple[int, ...]
    dtype: str
    below: int = 0
    positive: bool = False


def is_operand(leaf: Any) -> bool:
    """Whether a leaf of a program's arguments says what to make."""
    return isinstance(leaf, Operand)


def struct(o: Operand) -> jax.ShapeDtypeStruct:
    """Its type."""
    return jax.ShapeDtypeStruct(o.shape, o.dtype)


KERNELS: dict[str, Callable[[], Made]] = {}


def kernel(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register a program: the name says what it does."""
    KERNELS[make.__name__.replace("_", " ")] = make
    return make


def floats(*shape: int, dtype: str = F32) -> Operand:
    """Normal numbers."""
    return Operand(shape, dtype)


def whole(below: int, *shape: int, dtype: str = "int32") -> Operand:
    """Whole numbers from 0 on."""
    return Operand(shape, dtype, below)


M = 1 << 20


def _each(name: str, f: Callable[..., Any], *args: Any) -> None:
    KERNELS[name] = lambda: (f, args)


# Elementwise work and reductions.
_each("add two 256 MiB", lambda x, y: x + y, floats(64 * M), floats(64 * M))
_each("scale 256 MiB", lambda x: 2 * x, floats(64 * M))
_each("scale 16 MiB", lambda x: 2 * x, floats(4 * M))
_each("scale 1 MiB", lambda x: 2 * x, floats(M // 4))
_each("scale 4 KiB", lambda x: 2 * x, floats(1024))
_each("gelu of bfloat16 128 MiB", jax.nn.gelu, floats(64 * M, dtype=BF16))
_each("sin and log 256 MiB", lambda x: jnp.sin(x) * jnp.log(jnp.abs(x) + 1), floats(64 * M))
_each("erf, tanh and exp 64 MiB", lambda x: lax.erf(x) + jnp.tanh(x) * jnp.exp(-x * x), floats(16 * M))
_each("power of 40", lambda x: lax.integer_pow(x, 40) + 1, floats(64 * M))
_each("float64 polynomial", lambda x: ((x * 3 + 1) * x + 2) * x + 5, floats(16 * M, dtype=F64))
_each("softmax of rows 8192 x 4096", lambda x: jax.nn.softmax(x, -1), floats(8192, 4096))
_each("softmax of rows 512 x 65536", lambda x: jax.nn.softmax(x, -1), floats(512, 65536))
_each("softmax of columns", lambda x: jax.nn.softmax(x, 0), floats(8192, 4096))
_each("layer norm of bfloat16", lambda x, g, b: _norm(x) * g + b,
      floats(16384, 4096, dtype=BF16), floats(4096, dtype=BF16), floats(4096, dtype=BF16))  # fmt: skip
_each("RMS norm and its gradient", jax.grad(lambda x, g: (_rms(x) * g).astype(F32).sum(), (0, 1)),
      floats(16384, 4096, dtype=BF16), floats(4096, dtype=BF16))  # fmt: skip
_each("sum of all", jnp.sum, floats(64 * M))
_each("sum of rows", lambda x: x.sum(1), floats(8192, 8192))
_each("sum of columns", lambda x: x.sum(0), floats(8192, 8192))
_each("mean and variance", lambda x: (x.mean(0), x.var(0)), floats(16384, 4096))
_each("argmax of rows", lambda x: x.argmax(1), floats(16384, 4096))
_each("transpose 256 MiB", lambda x: x.T + 1, floats(8192, 8192))
_each("transpose of heads", lambda x: x.transpose(0, 2, 1, 3) * 2, floats(32, 1024, 16, 128, dtype=BF16))
_each("concatenate", lambda x, y: jnp.concatenate([x, y], 1), floats(8192, 3000), floats(8192, 5000))
_each("roll and add", lambda x: x + jnp.roll(x, 1, 0) + jnp.roll(x, -1, 1), floats(8192, 8192))
_each("cross entropy of 32k words", lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x.astype(F32)), i[:, None], 1).mean(),
      floats(8192, 32000, dtype=BF16), whole(32000, 8192))  # fmt: skip
_each("gradient of cross entropy", jax.grad(
    lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x.astype(F32)), i[:, None], 1).mean()),
    floats(8192, 32000, dtype=BF16), whole(32000, 8192))  # fmt: skip
_each("Adam of 100M", lambda p, m, v, g: _adam(p, m, v, g), *(floats(100_000_000),) * 4)
_each("complex product", lambda x, y: (x + 1j * y) * (y - 1j * x), floats(16 * M), floats(16 * M))


def _norm(x: Any) -> Any:
    wide = x.astype(F32)
    return ((wide - wide.mean(-1, keepdims=True)) * lax.rsqrt(wide.var(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def _rms(x: Any) -> Any:
    wide = x.astype(F32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def _adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


# Products.
def _product(x: Any, y: Any) -> Any:
    return x @ y


for _side in (256, 512, 1024, 2048, 4096, 8192, 16384):
    _each(f"bfloat16 product of {_side}", _product, *(floats(_side, _side, dtype=BF16),) * 2)
for _side in (512, 2048, 8192):
    _each(f"float32 product of {_side}", _product, *(floats(_side, _side),) * 2)
for _m, _k, _n in ((8192, 4096, 14336), (16384, 768, 3072), (512, 4096, 4096), (64, 8192, 8192), (1, 8192, 8192),
                   (8192, 8192, 64), (100, 100, 100_000), (5000, 3000, 7000), (2048, 65536, 2048)):  # fmt: skip
    _each(f"bfloat16 product {_m} x {_k} x {_n}", _product, floats(_m, _k, dtype=BF16), floats(_k, _n, dtype=BF16))
_each("float32 product, highest", lambda x, y: jnp.matmul(x, y, precision="highest"), *(floats(4096, 4096),) * 2)
_each("float16 product of 4096", _product, *(floats(4096, 4096, dtype=F16),) * 2)
_each("float64 product of 2048", _product, *(floats(2048, 2048, dtype=F64),) * 2)
_each("int8 product of 4096", lambda x, y: jnp.matmul(x, y, preferred_element_type=jnp.int32),
      *(whole(100, 4096, 4096, dtype="int8"),) * 2)  # fmt: skip
_each("256 products of 512", _product, *(floats(256, 512, 512, dtype=BF16),) * 2)
_each("4096 float32 products of 32", _product, *(floats(4096, 32, 32),) * 2)
_each("product with bias and gelu", lambda x, w, b: jax.nn.gelu(x @ w + b),
      floats(8192, 4096, dtype=BF16), floats(4096, 4096, dtype=BF16), floats(4096, dtype=BF16))  # fmt: skip
_each("product of float32 cast to bfloat16", lambda x, w: x.astype(BF16) @ w.astype(BF16), *(floats(4096, 4096),) * 2)
_each("gradients of a product", jax.grad(lambda x, w: (x @ w).astype(F32).sum() ** 2, (0, 1)),
      floats(8192, 4096, dtype=BF16), floats(4096, 4096, dtype=BF16))  # fmt: skip


# Attention and convolutions.
def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of [batch, tokens, heads, size], written out."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=F32) / q.shape[-1] ** 0.5
    n = q.shape[1]
    mask = jnp.arange(n)[:, None] >= jnp.arange(n)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e30), -1).astype(v.dtype), v)


_heads = (floats(4, 2048, 16, 128, dtype=BF16),) * 3
_each("attention", attention, *_heads)
_each("gradients of attention", jax.grad(lambda q, k, v: attention(q, k, v).astype(F32).sum(), (0, 1, 2)), *_heads)
_each("dot_product_attention", lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), *_heads)
_each(
    "one query of 64 sequences",
    attention,
    floats(64, 1, 16, 128, dtype=BF16),
    *(floats(64, 2048, 16, 128, dtype=BF16),) * 2,
)


def convolution(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    """Of images [batch, height, width, channels]."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


_each(
    "convolution 3 x 3 of 128 channels",
    convolution,
    floats(64, 56, 56, 128, dtype=BF16),
    floats(3, 3, 128, 128, dtype=BF16),
)
_each("float32 convolution 3 x 3", convolution, floats(64, 56, 56, 64), floats(3, 3, 64, 64))
_each("convolution 1 x 1", convolution, floats(64, 28, 28, 512, dtype=BF16), floats(1, 1, 512, 512, dtype=BF16))
_each("convolution 7 x 7 of 3 channels", lambda x, w: convolution(x, w, 2),
      floats(64, 224, 224, 3, dtype=BF16), floats(7, 7, 3, 64, dtype=BF16))  # fmt: skip
_each("depthwise convolution", lambda x, w: convolution(x, w, 1, 256),
      floats(64, 28, 28, 256, dtype=BF16), floats(3, 3, 1, 256, dtype=BF16))  # fmt: skip
_each("gradients of a convolution", jax.grad(lambda x, w: convolution(x, w).astype(F32).sum() ** 2, (0, 1)),
      floats(64, 28, 28, 256, dtype=BF16), floats(3, 3, 256, 256, dtype=BF16))  # fmt: skip


# Gathers, scatters and algorithms of their own.
_each("embedding of 64k tokens", lambda t, i: t[i], floats(50000, 1024, dtype=BF16), whole(50000, 65536))
_each("gradient of an embedding", lambda t, i, g: jnp.zeros_like(t).at[i].add(g),
      floats(50000, 1024), whole(50000, 16384), floats(16384, 1024))  # fmt: skip
_each("gather of 16M elements", lambda x, i: x[i], floats(64 * M), whole(64 * M, 16 * M))
_each("scatter of 4M elements", lambda x, i, y: x.at[i].add(y), floats(64 * M), whole(64 * M, 4 * M), floats(4 * M))
_each("segment sum", lambda x, i: jax.ops.segment_sum(x, i, num_segments=100_000), floats(M, 64), whole(100_000, M))
_each("sort of 16M", jnp.sort, floats(16 * M))
_each("sort of 1M", jnp.sort, floats(M))
_each("sort of rows", lambda x: jnp.sort(x, -1), floats(8192, 1024))
_each("argsort of 4M", jnp.argsort, floats(4 * M))
_each("argsort of rows", lambda x: jnp.argsort(x, -1), floats(4096, 2048))
_each("top 8 of rows", lambda x: lax.top_k(x, 8), floats(4096, 32768))
_each("top 50 of rows", lambda x: lax.top_k(x, 50), floats(256, 128_000))
_each("searchsorted", jnp.searchsorted, whole(1 << 30, M), whole(1 << 30, 4 * M))
_each("running sum of 16M", jnp.cumsum, floats(16 * M))
_each("running sum of rows", lambda x: jnp.cumsum(x, 1), floats(8192, 4096))
_each("FFT of rows", jnp.fft.fft, floats(4096, 4096, dtype="complex64"))
_each("FFT of 4M", jnp.fft.fft, floats(4 * M, dtype="complex64"))
_each("FFT in 3 dims", lambda x: jnp.fft.ifftn(jnp.fft.fftn(x)), floats(256, 256, 256, dtype="complex64"))
_each("real FFT in 2 dims", lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x)), floats(16, 1024, 1024))
_each("uniform numbers", lambda i: jax.random.uniform(jax.random.key(i), (64 * M,)), whole(9))
_each("normal numbers", lambda i: jax.random.normal(jax.random.key(i), (64 * M,)), whole(9))
_each(
    "dropout",
    lambda x, i: jnp.where(jax.random.bernoulli(jax.random.key(i), 0.9, x.shape), x / 0.9, 0),
    floats(64 * M),
    whole(9),
)
_each(
    "max pool",
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    floats(64, 112, 112, 64),
)
for _side in (512, 4096):
    _each(f"Cholesky of {_side}", jnp.linalg.cholesky, Operand((_side, _side), F32, positive=True))
    _each(f"LU of {_side}", lambda a: lax.linalg.lu(a)[0], floats(_side, _side))
    _each(f"solve of {_side}", jnp.linalg.solve, floats(_side, _side), floats(_side, 64))
    _each(f"QR of {_side}", jnp.linalg.qr, floats(_side, _side))
for _side in (256, 2048):
    _each(f"symmetric eigenvectors of {_side}", jnp.linalg.eigh, Operand((_side, _side), F32, positive=True))
for _side in (128, 512):
    _each(f"SVD of {_side}", lambda a: jnp.linalg.svd(a, full_matrices=False), floats(_side, _side))
for _side, _n in ((8, 10_000), (32, 1000)):
    _each(f"{_n} Choleskys of {_side}", jnp.linalg.cholesky, Operand((_n, _side, _side), F32, positive=True))
    _each(f"{_n} symmetric eigenvectors of {_side}", jnp.linalg.eigh, Operand((_n, _side, _side), F32, positive=True))
_each("triangular solve of 4096", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
      Operand((4096, 4096), F32, positive=True), floats(4096, 1024))  # fmt: skip
