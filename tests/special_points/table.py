"""Which expressions are evaluated, made from the namespaces; and which public names are not, with the reason.

A function that maps float vectors to results of their shape is an expression by itself: `found` tries that with as many vectors as
the function has required parameters. `FORMS` says how others are called, `SKIPPED` why some are not.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from typing import Any

import numpy as np

from tests.special_points.points import BY_ARITY

DISTRIBUTIONS = """bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace logistic
multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises wrapcauchy""".split()

SPACES = {"jnp": "numpy", "lax": "lax", "nn": "nn", "special": "scipy.special", "stats": "scipy.stats"}
SPACES |= {f"stats.{name}": f"scipy.stats.{name}" for name in DISTRIBUTIONS}

# What other calls than the plain one are evaluated.
FORMS = """
jnp.max(rows, axis=1)
jnp.min(rows, axis=1)
jnp.sum(rows, axis=1)
jnp.sum(rows, axis=1, initial=-0.0)
jnp.sum(rows, axis=1, initial=2.0, where=rows > 0)
jnp.max(rows, axis=1, initial=0.5)
jnp.min(rows, axis=1, initial=-0.0)
jnp.prod(rows, axis=1, initial=-0.0)
jnp.prod(rows, axis=1)
jnp.mean(rows, axis=1)
jnp.average(rows, axis=1, weights=np.array([1.0, 0.0, 2.0], np.float32))
jnp.var(rows, axis=1)
jnp.std(rows, axis=1)
jnp.std(rows, axis=1, ddof=1)
jnp.median(rows, axis=1)
jnp.ptp(rows, axis=1)
jnp.nanmax(rows, axis=1)
jnp.nanmin(rows, axis=1)
jnp.nansum(rows, axis=1)
jnp.nanprod(rows, axis=1)
jnp.nanmean(rows, axis=1)
jnp.nanvar(rows, axis=1)
jnp.nanstd(rows, axis=1)
jnp.nanmedian(rows, axis=1)
jnp.quantile(rows, 0.25, axis=1)
jnp.percentile(rows, 50.0, axis=1)
jnp.nanquantile(rows, 0.25, axis=1)
jnp.nanpercentile(rows, 50.0, axis=1)
jnp.argmax(rows, axis=1)
jnp.argmin(rows, axis=1)
jnp.nanargmax(jnp.maximum(rows, np.array([0.25, -1.0, 2.0], np.float32)), axis=1)
jnp.all(rows, axis=1)
jnp.any(rows, axis=1)
jnp.count_nonzero(rows, axis=1)
jnp.trapezoid(rows, axis=1)
jnp.diff(rows, axis=1)
jnp.ediff1d(x)
jnp.gradient(rows, axis=1)
jnp.cumsum(rows, axis=1)
jnp.cumprod(rows, axis=1)
jnp.nancumsum(rows, axis=1)
jnp.nancumprod(rows, axis=1)
jnp.cumulative_sum(rows, axis=1, include_initial=True)
jnp.cumulative_prod(rows, axis=1, include_initial=True)
jnp.sort(rows, axis=1)
jnp.argsort(rows, axis=1)
jnp.partition(rows, 1, axis=1)
jnp.argpartition(rows, 1, axis=1)
jnp.logaddexp.reduce(rows, axis=1)
jnp.maximum.accumulate(rows, axis=1)
jnp.maximum.reduce(rows, axis=1)
jnp.multiply.accumulate(rows, axis=1)
jnp.clip(x, -0.5, 0.5)
jnp.clip(x, -0.0, 1.0)
jnp.clip(x, 0.0, 0.0)
jnp.clip(x, min=-0.0)
jnp.clip(x, max=0.0)
jnp.clip(p, q, r)
jnp.where(a > 0, a, b)
jnp.where(a > 0, jnp.log(a), b)
jnp.select([a > 0, b > 0], [a, b], 0.5)
jnp.interp(x, np.array([-1.0, 0.0, 0.0, 2.0], np.float32), np.array([0.0, 1.0, 5.0, 3.0], np.float32))
jnp.unwrap(rows, axis=1)
jnp.nan_to_num(x, nan=2.0, posinf=5.0, neginf=-5.0)
jnp.round(x, 1)
jnp.round(x, -1)
jnp.angle(x, deg=True)
jnp.isclose(a, b, equal_nan=True)
jnp.allclose(rows, rows, equal_nan=True)
jnp.array_equal(rows, rows, equal_nan=True)
jnp.ldexp(x, np.int32(3))
jnp.ldexp(x, np.int32(-3))
jnp.searchsorted(np.array([-1.0, -0.0, 0.0, 1.0, np.inf, np.nan], np.float32), x)
jnp.searchsorted(np.array([-1.0, -0.0, 0.0, 1.0, np.inf, np.nan], np.float32), x, side="right")
jnp.digitize(x, np.array([-1.0, 0.0, 1.0], np.float32))
jnp.unique(np.array([0.0, -0.0, np.nan, np.nan, np.inf, -np.inf, 1.0], np.float32), size=5)
jnp.histogram(x[:30], bins=4)
jnp.linspace(a[::7], b[::7], 3)
jnp.linspace(p[::9], q[::9], 4, endpoint=False)
jnp.geomspace(np.float32(0.5), jnp.abs(x[2:26]), 3)
jnp.logspace(x[:20], np.float32(1), 3)
jnp.dot(rows, np.array([1.0, 0.0, -2.0], np.float32))
jnp.vecdot(rows, rows)
jnp.cross(rows, np.array([1.0, 0.0, -2.0], np.float32))
jnp.outer(x[::3], x[::4])
jnp.linalg.norm(rows, axis=1)
jnp.linalg.norm(rows, ord=1, axis=1)
jnp.linalg.norm(rows, ord=np.inf, axis=1)
jnp.linalg.norm(rows, ord=-np.inf, axis=1)
jnp.linalg.norm(rows, ord=0, axis=1)
jnp.linalg.norm(rows, ord=2, axis=1)
jnp.linalg.norm(rows, ord=3, axis=1)
jnp.linalg.norm(rows, ord=0.5, axis=1)
jnp.linalg.norm(rows[:60].reshape(20, 3, 3), axis=(1, 2))
jnp.linalg.norm(rows[:60].reshape(20, 3, 3), ord=1, axis=(1, 2))
jnp.linalg.norm(rows[:60].reshape(20, 3, 3), ord=np.inf, axis=(1, 2))
jnp.linalg.vector_norm(rows, axis=1)
jnp.linalg.vector_norm(rows, axis=1, ord=1)
x ** 2
x ** 3
x ** -1
x ** 0
x ** 0.5
x ** -0.5
x ** 1
2.0 ** x
0.0 ** x
abs(x)
x // 2
x % 2
2 // x
2 % x
x // 0
x % 0
divmod(x, -0.5)
jnp.power(a, i[0])
jnp.power(x, np.int32(3))
jnp.power(x, np.int32(-2))
jnp.power(x, np.array([0, 1, 2, 3, -1, -2, 5] * 5 + [7, 8], np.int32))
jnp.power(i, j)
i // j
i % j
jnp.fmod(i, j)
divmod(i, j)
jnp.abs(i)
jnp.sign(i)
jnp.square(i)
jnp.negative(i)
jnp.floor_divide(i, j)
jnp.true_divide(i, j)
jnp.left_shift(i, j)
jnp.right_shift(i, j)
jnp.bitwise_and(i, j)
jnp.bitwise_or(i, j)
jnp.bitwise_xor(i, j)
jnp.bitwise_left_shift(i, j)
jnp.bitwise_right_shift(i, j)
jnp.bitwise_not(i)
jnp.bitwise_invert(i)
jnp.invert(i)
jnp.bitwise_count(i)
jnp.heaviside(i, j)
jnp.maximum(i, j)
jnp.add(i, j)
jnp.multiply(i, j)
jnp.clip(i, -5, 5)
jnp.cumsum(i)
jnp.cumprod(i)
jnp.sum(i)
jnp.prod(i)
jnp.max(empty, axis=1)
jnp.sum(empty)
jnp.prod(empty, axis=0)
jnp.max(empty, axis=0, initial=-1.0)
jnp.mean(empty, axis=0)
jnp.var(empty, axis=0)
jnp.std(empty)
jnp.nanmean(empty, axis=0)
jnp.median(empty, axis=1)
jnp.cumsum(empty, axis=0)
jnp.cumprod(empty, axis=1)
jnp.cumulative_sum(empty, axis=0)
jnp.sort(empty, axis=0)
jnp.logaddexp(empty, empty)
jnp.linalg.norm(empty)
jnp.linalg.norm(empty, axis=1, ord=1)
jnp.linalg.norm(empty, axis=0, ord=1)
special.logsumexp(empty, axis=0)
special.logsumexp(empty)
nn.softmax(empty, axis=1)
nn.logsumexp(empty, axis=0)
lax.cummax(empty, 0)
lax.cumlogsumexp(empty, 0)
lax.reduce_max(empty, (0,))
lax.reduce_sum(empty, (0, 1))
lax.cumsum(rows, 1)
lax.cumprod(rows, 1)
lax.cummax(rows, 1)
lax.cummin(rows, 1)
lax.cumlogsumexp(rows, 1)
lax.cumsum(rows, 1, reverse=True)
lax.cumprod(rows, 1, reverse=True)
lax.cummax(rows, 1, reverse=True)
lax.cummin(rows, 1, reverse=True)
lax.cumlogsumexp(rows, 1, reverse=True)
lax.reduce_max(rows, (1,))
lax.reduce_min(rows, (1,))
lax.reduce_sum(rows, (1,))
lax.reduce_prod(rows, (1,))
lax.argmax(rows, 1, np.int32)
lax.argmin(rows, 1, np.int32)
lax.reduce_and(i, (0,))
lax.reduce_or(i, (0,))
lax.reduce_xor(i, (0,))
lax.reduce(rows, np.float32(-0.0), lax.add, (1,))
lax.reduce(rows, np.float32(0.5), lax.max, (1,))
lax.reduce(rows, np.float32(1), lax.mul, (1,))
lax.reduce_precision(x, 5, 3)
lax.reduce_window(rows, -np.inf, lax.max, (1, 2), (1, 1), "VALID")
lax.reduce_window(rows, 0.0, lax.add, (1, 2), (1, 1), "SAME")
lax.sort(rows, dimension=1)
lax.top_k(rows, 2)
lax.integer_pow(x, 0)
lax.integer_pow(x, 1)
lax.integer_pow(x, 2)
lax.integer_pow(x, 3)
lax.integer_pow(x, -1)
lax.integer_pow(x, -3)
lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
lax.clamp(np.float32(-0.0), x, np.float32(1.0))
lax.clamp(np.float32(1.0), x, np.float32(-1.0))
lax.select(a > 0, a, b)
lax.select_n(a > 0, a, b)
lax.dot(rows, np.array([1.0, 0.0, -2.0], np.float32))
lax.div(i, j)
lax.rem(i, j)
lax.pow(x, np.int32(2))
lax.shift_left(i, j)
lax.shift_right_arithmetic(i, j)
lax.shift_right_logical(i, j)
lax.mulhi(i, j)
lax.population_count(i)
lax.clz(i)
lax.bitwise_and(i, j)
lax.bitwise_or(i, j)
lax.bitwise_xor(i, j)
lax.bitwise_not(i)
lax.abs(i)
lax.sign(i)
lax.neg(i)
lax.complex(a, b)
lax.real(z)
lax.imag(z)
lax.convert_element_type(x, np.int32)
lax.convert_element_type(x, np.int8)
lax.convert_element_type(x, np.uint8)
lax.convert_element_type(x, np.float16)
lax.convert_element_type(x, jnp.bfloat16)
lax.convert_element_type(x, bool)
lax.convert_element_type(i, np.float32)
lax.random_gamma_grad(np.float32(2.5), x)
lax.random_gamma_grad(a, b)
lax.polygamma(np.float32(1), x)
lax.polygamma(np.float32(2), x)
lax.associative_scan(lax.max, rows, axis=1)
nn.glu(jnp.concatenate([rows, rows], 1))
nn.relu(rows)
nn.softmax(rows)
nn.softmax(rows, where=rows > 0)
nn.log_softmax(rows)
nn.logsumexp(rows, axis=1)
nn.logmeanexp(rows, axis=1)
nn.standardize(rows)
nn.gelu(x, approximate=False)
nn.leaky_relu(x, 0.0)
nn.elu(x, 0.5)
nn.celu(x, 0.5)
nn.squareplus(x, 0.0)
nn.one_hot(x, 3)
special.logsumexp(rows, axis=1)
special.logsumexp(rows, axis=1, b=np.array([1.0, 0.0, -2.0], np.float32))
special.logsumexp(rows, axis=1, b=np.array([1.0, 0.0, -2.0], np.float32), return_sign=True)
special.softmax(rows, axis=1)
special.log_softmax(rows, axis=1)
special.multigammaln(x, 2)
special.polygamma(1, x)
special.polygamma(np.array([0, 1, 2, 3] * 9 + [1], np.int32), x)
special.zeta(x, np.float32(1.0))
special.zeta(np.float32(2.0), x)
special.bessel_jn(x[:26], v=2)
special.comb(a, b, repetition=True)
special.log_ndtr(x, 5)
special.hyp1f1(np.float32(0.5), np.float32(1.5), x[:28])
special.hyp1f1(np.float32(-2.0), np.float32(0.5), x[:28])
special.hyp2f1(np.float32(0.5), np.float32(1.0), np.float32(1.5), np.array([0.0, -0.0, 0.5, -0.5, 0.99, -0.99], np.float32))
stats.norm.logpdf(p, q, r)
stats.norm.cdf(p, q, r)
stats.norm.logcdf(p, q, r)
stats.norm.ppf(p, q, r)
stats.laplace.logpdf(p, q, r)
stats.laplace.cdf(p, q, r)
stats.uniform.logpdf(p, q, r)
stats.expon.logpdf(p, q, r)
stats.cauchy.logpdf(p, q, r)
stats.logistic.logpdf(p, q, r)
stats.gumbel_r.logpdf(p, q, r)
stats.t.logpdf(x, np.float32(2.5))
stats.dirichlet.logpdf(np.array([0.0, 0.5, 0.5], np.float32), jnp.abs(rows[301]))
stats.dirichlet.logpdf(np.array([0.0, 0.5, 0.5], np.float32), np.array([1.0, 2.0, 1.5], np.float32))
stats.dirichlet.pdf(np.array([0.0, 0.5, 0.5], np.float32), np.array([1.0, 2.0, 1.5], np.float32))
stats.multinomial.logpmf(np.array([0, 1, 2], np.int32), np.int32(3), rows[200])
stats.multivariate_normal.logpdf(rows[:, :2], np.zeros(2, np.float32), np.eye(2, dtype=np.float32))
stats.poisson.logpmf(np.array([0, 1, 5], np.int32), np.float32(0.0))
stats.binom.logpmf(np.array([0, 1, 5], np.int32), np.int32(5), np.float32(0.0))
stats.sem(rows, axis=1)
stats.mode(rows, axis=1)
stats.rankdata(rows, axis=1)
jnp.abs(z)
jnp.sign(z)
jnp.exp(z)
jnp.exp2(z)
jnp.expm1(z)
jnp.log(z)
jnp.log1p(z)
jnp.log2(z)
jnp.log10(z)
jnp.sqrt(z)
jnp.square(z)
jnp.reciprocal(z)
jnp.sin(z)
jnp.cos(z)
jnp.tan(z)
jnp.sinh(z)
jnp.cosh(z)
jnp.tanh(z)
jnp.arcsin(z)
jnp.arccos(z)
jnp.arctan(z)
jnp.arcsinh(z)
jnp.arccosh(z)
jnp.arctanh(z)
jnp.angle(z)
jnp.conj(z)
jnp.negative(z)
jnp.sinc(z)
jnp.isnan(z)
jnp.isinf(z)
jnp.isfinite(z)
jnp.nan_to_num(z)
jnp.round(z)
jnp.real(z)
jnp.imag(z)
jnp.multiply(u, v)
jnp.divide(u, v)
jnp.add(u, v)
jnp.subtract(u, v)
jnp.power(u, v)
jnp.logaddexp(u, v)
jnp.maximum(u, v)
jnp.minimum(u, v)
jnp.greater(u, v)
jnp.equal(u, v)
jnp.prod(z[:30])
jnp.sum(z[:30])
z ** 2
z ** 3
z ** -1
lax.rsqrt(z)
lax.integer_pow(z, 3)
lax.logistic(z)
lax.abs(z)
nn.sigmoid(z)
jnp.sqrt(t)
jnp.exp(t)
jnp.abs(t)
jnp.tanh(t)
jnp.expm1(t)
jnp.log1p(t)
jnp.sign(t)
jnp.logaddexp(t, t)
nn.gelu(t)
nn.softplus(t)
lax.erf(t)
lax.lgamma(t)
lax.rsqrt(t)
lax.logistic(t)
special.entr(t)
special.xlogy(t, t)
"""
_REASONS = {
    "moves elements or makes arrays, no arithmetic": """jnp.array jnp.asarray jnp.block jnp.copy jnp.empty_like jnp.flip jnp.flipud
        jnp.full_like jnp.hstack jnp.ones_like jnp.zeros_like jnp.ravel jnp.squeeze jnp.stack jnp.transpose jnp.roll lax.broadcast_like
        lax.optimization_barrier lax.stack lax.stop_gradient lax.sort_key_val nn.identity jnp.unravel_index""",
    "joins elements: evaluated along rows": """jnp.argsort jnp.cumprod jnp.cumsum jnp.cumulative_prod jnp.cumulative_sum jnp.gradient
        jnp.nancumprod jnp.nancumsum jnp.nanpercentile jnp.nanquantile jnp.percentile jnp.quantile jnp.sort jnp.sort_complex jnp.unwrap
        lax.cumlogsumexp lax.cummax lax.cummin lax.cumprod lax.cumsum lax.sort nn.log_softmax nn.softmax nn.standardize
        special.log_softmax special.softmax stats.rankdata jnp.interp jnp.digitize jnp.searchsorted jnp.isin jnp.polyadd jnp.polysub
        jnp.polyval""",
    "JAX runs for minutes at infinities: evaluated at finite points": """special.hyp1f1 special.hyp2f1 special.exp1
        special.expi special.expn""",
    "moves elements, makes arrays, or tells of types": """
        jnp.amax jnp.amin jnp.append jnp.arange jnp.array_repr jnp.array_split jnp.array_str jnp.astype jnp.atleast_1d
        jnp.atleast_2d jnp.atleast_3d jnp.bartlett jnp.blackman jnp.broadcast_arrays jnp.broadcast_shapes
        jnp.broadcast_to jnp.can_cast jnp.choose jnp.column_stack jnp.compress jnp.concat jnp.delete jnp.diag
        jnp.diag_indices jnp.diag_indices_from jnp.diagflat jnp.diagonal jnp.dsplit jnp.dstack jnp.empty
        jnp.expand_dims jnp.extract jnp.eye jnp.fill_diagonal jnp.fix jnp.fliplr jnp.from_dlpack jnp.frombuffer
        jnp.fromfile jnp.fromfunction jnp.fromiter jnp.fromstring jnp.full jnp.get_printoptions jnp.hamming
        jnp.hanning jnp.hsplit jnp.identity jnp.indices jnp.insert jnp.iscomplexobj jnp.isdtype jnp.isrealobj
        jnp.isscalar jnp.issubdtype jnp.iterable jnp.ix_ jnp.kaiser jnp.load jnp.mask_indices jnp.matrix_transpose
        jnp.meshgrid jnp.moveaxis jnp.ndim jnp.ones jnp.packbits jnp.pad jnp.permute_dims jnp.place jnp.printoptions
        jnp.promote_types jnp.put jnp.put_along_axis jnp.ravel_multi_index jnp.repeat jnp.reshape jnp.resize
        jnp.result_type jnp.rollaxis jnp.rot90 jnp.save jnp.savez jnp.set_printoptions jnp.shape jnp.size jnp.split
        jnp.swapaxes jnp.take jnp.take_along_axis jnp.tile jnp.tri jnp.tril jnp.tril_indices jnp.tril_indices_from
        jnp.trim_zeros jnp.triu jnp.triu_indices jnp.triu_indices_from jnp.unpackbits jnp.unstack jnp.vsplit
        jnp.vstack jnp.zeros
        lax.DotDimensionNumbers lax.after_all lax.bitcast_convert_type lax.broadcast lax.broadcast_in_dim
        lax.broadcast_shapes lax.broadcast_to_rank lax.broadcasted_iota lax.collapse lax.concatenate lax.create_token
        lax.dtype lax.dynamic_index_in_dim lax.dynamic_slice lax.dynamic_slice_in_dim lax.dynamic_update_index_in_dim
        lax.dynamic_update_slice lax.dynamic_update_slice_in_dim lax.empty lax.expand_dims lax.full lax.full_like
        lax.gather lax.index_in_dim lax.index_take lax.iota lax.pad lax.padtype_to_pads lax.reshape lax.rev
        lax.scatter lax.scatter_add lax.scatter_apply lax.scatter_max lax.scatter_min lax.scatter_mul lax.scatter_sub
        lax.slice lax.slice_in_dim lax.split lax.squeeze lax.tile lax.transpose lax.unstack lax.zeros_like_array
        lax.reduce_window_shape_tuple lax.conv_dimension_numbers lax.conv_general_permutations
        lax.conv_general_shape_tuple lax.conv_shape_tuple lax.conv_transpose_shape_tuple
        nn.get_scaled_dot_general_config
    """,
    "products, polynomials, sets and functions of functions: tests of their own": """
        jnp.array_equiv jnp.argwhere jnp.bincount jnp.convolve jnp.corrcoef jnp.correlate jnp.cov jnp.flatnonzero
        jnp.histogram2d jnp.histogram_bin_edges jnp.histogramdd jnp.intersect1d jnp.lexsort jnp.nanargmin jnp.nonzero
        jnp.poly jnp.polyder jnp.polydiv jnp.polyfit jnp.polyint jnp.polymul jnp.roots jnp.setdiff1d jnp.setxor1d
        jnp.trace jnp.union1d jnp.unique_all jnp.unique_counts jnp.unique_inverse jnp.unique_values jnp.vander
        jnp.einsum jnp.einsum_path jnp.inner jnp.kron jnp.matmul jnp.matvec jnp.tensordot jnp.vdot jnp.vecmat
        jnp.apply_along_axis jnp.apply_over_axes jnp.frompyfunc jnp.vectorize
        lax.approx_max_k lax.approx_min_k lax.batch_matmul lax.composite lax.cond lax.conv lax.conv_general_dilated
        lax.conv_general_dilated_local lax.conv_general_dilated_patches lax.conv_transpose
        lax.conv_with_general_padding lax.custom_linear_solve lax.custom_root lax.dot_general lax.fft lax.fori_loop
        lax.map lax.platform_dependent lax.ragged_dot lax.ragged_dot_general lax.scan lax.switch lax.while_loop
        nn.scaled_dot_general nn.scaled_matmul stats.multinomial.pmf stats.multivariate_normal.pdf
    """,
    "collectives: need a mesh": """
        lax.all_gather lax.all_to_all lax.axis_index lax.axis_size lax.pbroadcast lax.pcast lax.pmax lax.pmean
        lax.pmin lax.ppermute lax.pshuffle lax.psum lax.psum_scatter lax.pswapaxes lax.pvary lax.ragged_all_to_all
        lax.with_sharding_constraint
    """,
    "JAX never ends at the least integer": "jnp.gcd jnp.lcm",
    "JAX has no such name in both eras, or it is another name of one that is here": """lax.regularized_incomplete_beta nn.hard_swish
        nn.normalize nn.swish nn.tanh special.sph_harm""",
    "takes integers of degree and order": "special.bernoulli special.sph_harm_y",
    "takes functions or matrices": "jnp.piecewise nn.dot_product_attention",
}
SKIPPED = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def library(name: str) -> dict[str, Any]:
    """What expressions may name: the namespaces of 'jax' or 'shardwise'."""
    out = {short: importlib.import_module(f"{name}.{path}") for short, path in SPACES.items() if "." not in short}
    for distribution in DISTRIBUTIONS:
        importlib.import_module(f"{name}.scipy.stats.{distribution}")
    return out | {"np": np, "jax": importlib.import_module(name)}


def public_names(name: str, space: str) -> dict[str, Any]:
    """The public functions of one namespace of a library."""
    module = importlib.import_module(f"{name}.{SPACES[space]}")
    listed = getattr(module, "__all__", dir(module))
    return {
        n: f
        for n in sorted(listed)
        if not n.startswith("_")
        and callable(f := getattr(module, n))
        and not inspect.isclass(f)
        and not n.endswith("_p")
    }


def arity(function: Any) -> int:
    """How many operands a function needs at least."""
    if hasattr(function, "nin"):
        return function.nin
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # an alias for a type
        return 0
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def is_elementwise(jax: Any, function: Any, count: int) -> bool:
    """Whether `count` float vectors go to results of their shape."""
    try:
        out = jax.eval_shape(function, *[jax.ShapeDtypeStruct((6,), np.float32)] * count)
    except Exception:
        return False
    return all(leaf.shape == (6,) for leaf in jax.tree.leaves(out))


@functools.cache
def found() -> dict[str, str]:
    """Expression by public name, for all names that need no form of their own."""
    import jax

    out, seen = {}, set[int]()
    for space in SPACES:
        ours = public_names("shardwise", space)
        for name, function in public_names("jax", space).items():
            full = f"{space}.{name}"
            if name not in ours or full in SKIPPED or (key := id(function)) in seen:
                continue
            count = arity(function)
            if count in BY_ARITY and is_elementwise(jax, function, count):
                seen.add(key)
                out[full] = f"{full}({', '.join(BY_ARITY[count])})"
    return out


def names_in_forms() -> set[str]:
    """The public functions that forms call."""
    return set(re.findall(r"\b((?:jnp|lax|nn|special|stats)(?:\.\w+)+)\(", FORMS))


def expressions() -> list[str]:
    """All that is evaluated: the forms, and the functions that need none."""
    forms = [line.strip() for line in FORMS.splitlines()]
    return [line for line in forms if line] + list(found().values())
