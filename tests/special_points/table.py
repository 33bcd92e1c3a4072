"""Which expressions are evaluated, made from the namespaces; and which public names are not, with the reason.

A function that maps float vectors to results of their shape is an expression by itself: `found` tries that with as many vectors as
the function has required parameters. `FORMS` says how others are called, `SKIPPED` why some are not.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import re
from typing import Any

import numpy as np

from tests.special_points.forms import FORMS
from tests.special_points.points import BY_ARITY

DISTRIBUTIONS = """bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l gumbel_r laplace logistic
multinomial multivariate_normal nbinom norm pareto poisson t truncnorm uniform vonmises wrapcauchy""".split()

SPACES = {"jnp": "numpy", "lax": "lax", "nn": "nn", "special": "scipy.special", "stats": "scipy.stats"} | {
    f"stats.{name}": f"scipy.stats.{name}" for name in DISTRIBUTIONS
}

_REASONS = {
    "not recorded; tests/lax/test_values_and_scaled.py and tests/scipy/stats": "lax.stage lax.shape_as_value stats.poisson.entropy",
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
        nn.scaled_dot_general nn.scaled_matmul lax.scaled_dot stats.multinomial.pmf stats.multivariate_normal.pdf
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
    "takes the state of a generator of bits": "lax.rng_bit_generator",
    "draws from a hidden state": "lax.rng_uniform",
    "has no result": "lax.dce_sink",
    "takes functions or matrices": "jnp.piecewise nn.dot_product_attention",
}
SKIPPED = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def library(name: str) -> dict[str, Any]:
    """What expressions may name: the namespaces of 'jax' or 'shardwise'."""
    out = {short: importlib.import_module(f"{name}.{path}") for short, path in SPACES.items() if "." not in short}
    for distribution in DISTRIBUTIONS:
        with contextlib.suppress(ModuleNotFoundError):  # the JAX of the seeds has fewer
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
    return list(dict.fromkeys([*filter(None, forms), *found().values()]))
