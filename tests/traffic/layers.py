"""Single ops and layers: convolutions, pooling, shifts, gathers and scatters."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import add

ROWS = {"x": 8}
GRID = {"x": 4, "y": 2}


def _conv(name: str, shape: Any, kernel: Any, *, gradient: bool, **how: Any) -> None:
    def make(e: Any) -> Any:
        def f(x: Any, w: Any) -> Any:
            return e.lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **how)

        def both(x: Any, w: Any) -> Any:
            return e.jax.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1))(x, w)

        x, w = e.arg(shape, None, "x", "y"), e.arg(kernel)
        return (both, (x, w), (x.sharding, w.sharding)) if gradient else (f, (x, w), None)

    add(name + ("_gradient" if gradient else ""), GRID, make)


for _gradient in (False, True):
    _conv("conv_3_stride_2", (2, 64, 64, 4), (3, 3, 4, 4), gradient=_gradient, window_strides=(2, 2), padding="SAME")
    _conv("conv_5_stride_3", (2, 96, 96, 4), (5, 5, 4, 4), gradient=_gradient, window_strides=(3, 3), padding="SAME")
    _conv("conv_dilated", (2, 64, 64, 4), (3, 3, 4, 4), gradient=_gradient, window_strides=(1, 1),
          padding="SAME", rhs_dilation=(3, 2))  # fmt: skip
    _conv("conv_valid", (2, 64, 64, 4), (3, 3, 4, 4), gradient=_gradient, window_strides=(1, 1), padding="VALID")
    _conv("conv_patches", (2, 64, 64, 4), (4, 4, 4, 8), gradient=_gradient, window_strides=(4, 4), padding="VALID")
    _conv("conv_up", (2, 32, 32, 4), (4, 4, 4, 4), gradient=_gradient, window_strides=(1, 1),
          padding=((2, 2), (2, 2)), lhs_dilation=(2, 2))  # fmt: skip
    _conv("conv_depthwise", (2, 64, 64, 4), (5, 5, 1, 4), gradient=_gradient, window_strides=(1, 1),
          padding="SAME", feature_group_count=4)  # fmt: skip
    _conv("conv_7_stride_2", (2, 64, 64, 4), (7, 7, 4, 4), gradient=_gradient, window_strides=(2, 2),
          padding=((3, 3), (3, 3)))  # fmt: skip


def _pool(name: str, kind: str, window: int, stride: int, padding: str, *, gradient: bool, size: int = 64) -> None:
    def make(e: Any) -> Any:
        def f(x: Any) -> Any:
            start, op = (0.0, e.lax.add) if kind == "add" else (-e.jnp.inf, e.lax.max)
            w, s = (1, window, window, 1), (1, stride, stride, 1)
            return e.lax.reduce_window(x, start, op, w, s, padding)

        x = e.arg((2, size, size, 4), None, "x", "y")
        if gradient:
            return e.jax.grad(lambda x: (f(x) ** 2).sum()), (x,), x.sharding
        return f, (x,), None

    add(name + ("_gradient" if gradient else ""), GRID, make)


for _gradient in (False, True):
    _pool("pool_mean_2", "add", 2, 2, "VALID", gradient=_gradient)
    _pool("pool_mean_3_stride_1", "add", 3, 1, "SAME", gradient=_gradient)
    _pool("pool_mean_3_stride_2", "add", 3, 2, "SAME", gradient=_gradient)
    _pool("pool_mean_4_stride_3", "add", 4, 3, "SAME", gradient=_gradient, size=96)
    _pool("pool_max_3_stride_2", "max", 3, 2, "SAME", gradient=_gradient)


def _unary(name: str, f: Any, shape: Any = (4096, 16), spec: Any = ("x",), out: Any = ("x",), dtype: str = "float32",
           axes: Any = None) -> None:  # fmt: skip
    def make(e: Any) -> Any:
        return (lambda x: f(e, x)), (e.arg(shape, *spec, dtype=dtype),), None if out is None else e.at(*out)

    add(name, axes or ROWS, make)


_unary("roll", lambda e, x: e.jnp.roll(x, 3, axis=0))
_unary("shifted_difference", lambda e, x: e.jnp.diff(x, axis=0), out=None)
_unary("second_difference", lambda e, x: e.jnp.diff(x, 2, axis=0), out=None)
_unary("sum_of_differences", lambda e, x: (e.jnp.diff(x, axis=0) ** 2).sum(), out=())
_unary("flip", lambda e, x: e.jnp.flip(x, 0))
_unary("pad", lambda e, x: e.jnp.pad(x, ((1, 1), (0, 0)), mode="edge")[:-2])
_unary("wrapped_pad", lambda e, x: e.jnp.pad(x, ((2, 2), (0, 0)), mode="wrap")[2:-2])
_unary("set_of_a_shift", lambda e, x: x.at[1:].set(x[:-1]))
_unary("convolve", lambda e, x: e.jnp.convolve(x, e.jnp.array([0.25, 0.5, 0.25]), mode="same"), (4096,))
_unary("every_second", lambda e, x: x[::2])
_unary("running_sum", lambda e, x: e.jnp.cumsum(x, axis=0))
_unary("running_maximum", lambda e, x: e.lax.cummax(x, axis=0, reverse=True))
_unary("sorted", lambda e, x: e.jnp.sort(x, axis=0))
_unary("order", lambda e, x: e.jnp.argsort(x), (65536,))
_unary("top", lambda e, x: e.lax.top_k(x, 8)[0], (65536,), out=())
_unary("median", lambda e, x: e.jnp.median(x, axis=0), out=())
_unary("quantiles", lambda e, x: e.jnp.quantile(x, e.jnp.array([0.1, 0.9]), axis=0), out=())
_unary("histogram", lambda e, x: e.jnp.histogram(x, bins=16, range=(0, 1))[0], (65536,), out=())
_unary("bincount", lambda e, x: e.jnp.bincount(x, length=64), (65536,), out=(), dtype="int32")
_unary("argmax", lambda e, x: x.argmax(0), out=())
_unary("unique", lambda e, x: e.jnp.unique(x, size=256), (65536,), out=None)
_unary("partition", lambda e, x: e.jnp.partition(x, 100), (65536,), out=None)
_unary("argpartition", lambda e, x: e.jnp.argpartition(x, 100), (65536,), out=None)
_unary("permuted", lambda e, x: e.jax.random.permutation(e.jax.random.key(0), x, independent=True), (65536,))
_unary("permuted_rows", lambda e, x: e.jax.random.permutation(e.jax.random.key(0), x))
_unary("fft_1d", lambda e, x: e.jnp.fft.fft(x), (65536,), dtype="complex64")
_unary("fft_1d_inverse", lambda e, x: e.jnp.fft.ifft(x), (65536,), dtype="complex64")
_unary("fft_rows", lambda e, x: e.jnp.fft.fft(x, axis=0), dtype="complex64")
_unary("fft_2d", lambda e, x: e.jnp.fft.fft2(x), (256, 256), dtype="complex64")
_unary("fft_real", lambda e, x: e.jnp.fft.irfft(e.jnp.fft.rfft(x)), (65536,))
_unary("qr_tall", lambda e, x: e.jnp.linalg.qr(x), out=None)
_unary("qr_tall_r", lambda e, x: e.jnp.linalg.qr(x, mode="r"), out=())
_unary("cholesky_of_a_batch", lambda e, x: e.jnp.linalg.cholesky(x), (64, 8, 8))
_unary("svd_values_of_a_batch", lambda e, x: e.jnp.linalg.svd(x, compute_uv=False), (64, 8, 8))
_unary("transposed", lambda e, x: x.T, (4096, 64))
_unary("merged", lambda e, x: x.reshape(-1), (4096, 16))
_unary("cut_unevenly", lambda e, x: x.reshape(512, 8, 16).transpose(1, 0, 2), out=(None, "x"))
_unary("tiled", lambda e, x: e.jnp.tile(x, (2, 1)))
_unary("repeated", lambda e, x: e.jnp.repeat(x, 2, axis=0))
_unary("standardized", lambda e, x: (x - x.mean(0)) / x.std(0))
_unary("trace_of_a_product", lambda e, x: e.jnp.trace(x.T @ x), out=())
_unary("lower_triangle", lambda e, x: e.jnp.tril(x) + e.jnp.triu(x, 1), (512, 512))
_unary("resized", lambda e, x: e.jax.image.resize(x, (128, 128, 4), "linear"), (64, 64, 4))
_unary("nonzero", lambda e, x: e.jnp.nonzero(x > 0, size=512)[0], (65536,), out=())
_unary("both_axes_to_one", lambda e, x: e.jnp.tanh(x), (512, 512), ("x", "y"), (("x", "y"), None), axes=GRID)
_unary("axes_exchanged", lambda e, x: x + 1, (512, 512), ("x", "y"), ("y", "x"), axes=GRID)


def _indexed(name: str, f: Any, *args: Any, out: Any, axes: Any = None) -> None:
    def make(e: Any) -> Any:
        given = tuple(e.arg(shape, *spec, dtype=dtype) for shape, spec, dtype in args)
        return (lambda *a: f(e, *a)), given, None if out is None else e.at(*out)

    add(name, axes or ROWS, make)


F, I = "float32", "int32"  # noqa: E741
_indexed("rows_looked_up", lambda e, t, i: t[i], ((8192, 64), ("x",), F), ((256,), (), I), out=())
_indexed("rows_looked_up_split", lambda e, t, i: t[i], ((8192, 64), ("x",), F), ((2048,), ("x",), I), out=("x",))
_indexed("columns_looked_up", lambda e, t, i: t[:, i], ((512, 512), ("x",), F), ((64,), (), I), out=("x",))
_indexed("add_at_rows_and_columns", lambda e, t, r, c, v: t.at[r, c].add(v), ((1024, 1024), ("x",), F),
         ((512,), ("x",), I), ((512,), ("x",), I), ((512,), ("x",), F), out=("x",))  # fmt: skip
_indexed("add_at_rows_and_columns_everywhere", lambda e, t, r, c, v: t.at[r, c].add(v), ((1024, 1024), (), F),
         ((512,), ("x",), I), ((512,), ("x",), I), ((512,), ("x",), F), out=())  # fmt: skip
_indexed("add_at_rows", lambda e, t, r, v: t.at[r].add(v), ((8192, 64), ("x",), F), ((512,), ("x",), I),
         ((512, 64), ("x",), F), out=("x",))  # fmt: skip
_indexed("set_at_rows", lambda e, t, r, v: t.at[r].set(v), ((8192, 64), ("x",), F), ((512,), ("x",), I),
         ((512, 64), ("x",), F), out=("x",))  # fmt: skip
_indexed("set_a_row", lambda e, t, r, v: t.at[r].set(v), ((8192, 64), ("x",), F), ((), (), I), ((64,), (), F),
         out=("x",))  # fmt: skip
_indexed("slice_at_a_place", lambda e, t, r: e.lax.dynamic_slice_in_dim(t, r, 16), ((8192, 64), ("x",), F), ((), (), I),
         out=())  # fmt: skip
_indexed("along_a_dim", lambda e, t, i: e.jnp.take_along_axis(t, i, 1), ((512, 128), ("x",), F), ((512, 4), ("x",), I),
         out=("x",))  # fmt: skip
_indexed("search_in_split", lambda e, t, v: e.jnp.searchsorted(t, v), ((65536,), ("x",), F), ((512,), (), F), out=())
_indexed("sort_with_values", lambda e, k, v: e.lax.sort((k, v), num_keys=1), ((65536,), ("x",), F), ((65536,), ("x",), I),
         out=None)  # fmt: skip
