"""`sparsify`: functions of dense arrays, called with sparse ones. Each op of the function's program has a rule for them, or refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.base.wrapping import name_of, wraps
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.experimental.sparse import pieces, regions
from shardwise.experimental.sparse.bcoo import BCOO
from shardwise.experimental.sparse.bcsr import BCSR
from shardwise.experimental.sparse.formats import is_sparse
from shardwise.experimental.sparse.products import as_bcoo, bcoo_conv_general_dilated, bcoo_dot_general
from shardwise.ir import Equation, Literal, Op, Program, Var, bind, eagerly, literal
from shardwise.ops.control.cond import cond_p
from shardwise.ops.control.scan import scan_p
from shardwise.ops.control.while_loop import while_p
from shardwise.ops.elementwise.binary import add_p, div_p, mul_p, sub_p
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.ops.elementwise.unary import conj_p, imag_p, real_p
from shardwise.ops.indexing.gather import gather_p
from shardwise.ops.indexing.slicing import dynamic_slice_p
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.products.conv import conv_general_dilated_p
from shardwise.ops.reductions.reduce import reduce_sum_p
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import slice_p
from shardwise.ops.shapes.reshape import reshape_p
from shardwise.ops.shapes.reverse import rev_p
from shardwise.ops.shapes.transpose import squeeze_p, transpose_p
from shardwise.transforms.jit.jaxpr import make_jaxpr

Values = Sequence[Any]


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """`f` for arguments some of which may be sparse arrays: each of its ops works on their elements, and results may be sparse.

    Sums, products, products of matrices, convolutions, loops, branches, ops that move elements, and elementwise ops that make 0 of 0
    have such a form. A sum with a
    dense array is dense; matrices of BCSR arguments alone are BCSR. `use_tracer` chooses one of two ways to find the sparse form, and
    so has no effect.

    Raises:
        NotImplementedError: an op with a sparse operand has no sparse form.

    >>> from shardwise.experimental import sparse
    >>> f = sparse.sparsify(lambda m, v: jnp.sin(2 * m) @ v)
    >>> f(sparse.BCOO.fromdense(jnp.eye(2)), jnp.ones(2)).round(3)
    Array([0.909, 0.909], dtype=float32)
    """
    del use_tracer

    @wraps(f)
    def call_sparse(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = tree_flatten((args, kwargs), is_leaf=is_sparse)
        if not any(map(is_sparse, leaves)):
            return f(*args, **kwargs)
        sparse = [i for i, x in enumerate(leaves) if is_sparse(x)]
        dense = [i for i, x in enumerate(leaves) if isinstance(x, (np.ndarray, np.generic, jnp.ndarray))]

        def of_arrays(*arrays: Any) -> Any:
            full = list(leaves)
            for i, x in zip((*sparse, *dense), arrays, strict=True):
                full[i] = x
            given, named_args = tree_unflatten(tree, full)
            return f(*given, **named_args)

        of_arrays.__name__ = name_of(f)
        types = [ShapeDtypeStruct(leaves[i].shape, leaves[i].dtype) for i in sparse]
        closed_jaxpr, shape = make_jaxpr(of_arrays, return_shape=True)(*types, *[leaves[i] for i in dense])
        sparse_leaves = [as_bcoo(leaves[i]) for i in sparse]
        results = _run(
            closed_jaxpr.program, [*closed_jaxpr.consts, *sparse_leaves, *[jnp.asarray(leaves[i]) for i in dense]]
        )
        if all(isinstance(leaves[i], BCSR) for i in sparse):
            rows = [(x, leaves[i]) for x, i in zip(sparse_leaves, sparse, strict=True)]
            results = [_in_rows(x, rows) if is_sparse(x) and x.ndim == 2 else x for x in results]
        return tree_unflatten(tree_flatten(shape)[1], results)

    return call_sparse


def _in_rows(x: BCOO, known: Sequence[tuple[BCOO, BCSR]]) -> BCSR:
    """A matrix as a BCSR. One at the places of a known one keeps their order, in which elements of a row need not be sorted."""
    for other, rows in known:
        if x.indices is other.indices:
            return rows._like(x.data)
    return BCSR.from_bcoo(x)


def _run(program: Program, values: Values) -> list[Any]:
    env: dict[Any, Any] = dict(zip(program.inputs, values, strict=True))
    read = lambda a: env[a] if isinstance(a, Var) else a  # noqa: E731
    for eqn in program.equations:
        operands = [read(a) for a in eqn.inputs]
        outs = _results(eqn, operands) if any(map(is_sparse, operands)) else _bind_equation(eqn, operands)
        env.update(zip(eqn.outputs, outs, strict=True))
    return [as_array(x) if isinstance(x, Literal) else x for x in map(read, program.outputs)]


def _bind_equation(eqn: Equation, operands: Values) -> list[Any]:
    outs = bind(eqn.op, *operands, **eqn.params)
    return outs if eqn.op.multiple_results else [outs]


def _results(eqn: Equation, operands: Values) -> list[Any]:
    region = _REGIONS.get(eqn.op)
    if region is not None:
        return region(_run, eqn, *operands)
    rule = _RULES.get(eqn.op)
    if rule is not None:
        return [rule(eqn, *operands)]
    if eqn.op.inline is not None and eqn.op.call | (eqn.op.emit is None):
        return _run(eqn.op.inline(eqn), operands)
    if len(operands) == 1 and len(eqn.outputs) == 1 and (eqn.op.emit or eqn.op.ufunc) is not None:
        return [_elementwise(eqn, operands[0])]
    raise _refusal_error(eqn, operands)


def _refusal_error(eqn: Equation, operands: Values) -> NotImplementedError:
    given = ", ".join(str(x) if is_sparse(x) else x.aval.str_short() for x in operands)
    return NotImplementedError(
        f"{eqn.op.name} of {given} has no sparse form. Use todense() of the sparse operand, and call sparsify on the rest."
    )


def _elementwise(eqn: Equation, x: BCOO) -> BCOO:
    """An op that makes 0 of 0, of each element."""
    with eagerly():
        (of_zero,) = _bind_equation(eqn, [as_array(literal(0, dtype=x.dtype))])
        dense = bool(of_zero != 0)
    if dense:
        raise NotImplementedError(
            f"{eqn.op.name} of {x} is not sparse, as it makes {of_zero} of 0. Use todense() of the sparse operand."
        )
    single = x if x.unique_indices or eqn.op.additive else x.sum_duplicates(x.nse, remove_zeros=False)
    return single._like(_bind_equation(eqn, [single.data])[0])


# -- rules -------------------------------------------------------------------------------------------------------------------------


def _sum(eqn: Equation, x: Any, y: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        return x + y if eqn.op is add_p else x - y
    dense = [v.todense() if is_sparse(v) else v for v in (x, y)]
    return _bind_equation(eqn, dense)[0]


def _product(eqn: Equation, x: Any, y: Any) -> Any:
    if is_sparse(x) and is_sparse(y):
        return pieces.bcoo_multiply_sparse(x, y)
    return x * as_array(y) if is_sparse(x) else y * as_array(x)


def _quotient(eqn: Equation, x: Any, y: Any) -> Any:
    if is_sparse(y):
        raise _refusal_error(eqn, (x, y))
    whole = (
        np.issubdtype(x.dtype, np.integer) and not x.unique_indices
    )  # parts of integers are not divided by themselves
    single = x.sum_duplicates(x.nse, remove_zeros=False) if whole else x
    return single.beside(lambda a, b: _bind_equation(eqn, [a, b])[0], "/", as_array(y))


def _of_parts(eqn: Equation, x: BCOO) -> BCOO:
    """An op of complex elements that makes a sum's result of the results of its parts."""
    return x._like(_bind_equation(eqn, [x.data])[0])


def _dot(eqn: Equation, x: Any, y: Any) -> Any:
    return bcoo_dot_general(
        x,
        y,
        dimension_numbers=eqn.params["dimension_numbers"],
        preferred_element_type=eqn.params.get("preferred_element_type"),
    )


def _reshape_sparse(eqn: Equation, x: BCOO) -> BCOO:
    return x.reshape(eqn.outputs[0].aval.shape)


def _window(eqn: Equation, x: Any, *starts: Any) -> BCOO:
    if not is_sparse(x):
        raise _refusal_error(eqn, (x, *starts))
    return pieces.bcoo_dynamic_slice(x, [as_array(s) for s in starts], eqn.params["slice_sizes"])


def _concatenate(eqn: Equation, *parts: Any) -> BCOO:
    matrices = [x if is_sparse(x) else BCOO.fromdense(as_array(x), nse=as_array(x).size) for x in parts]
    return pieces.bcoo_concatenate(matrices, dimension=eqn.params["dimension"])


def _broadcast_sparse(eqn: Equation, x: BCOO) -> BCOO:
    dims = eqn.params["broadcast_dimensions"]
    return pieces.bcoo_broadcast_in_dim(x, shape=eqn.params["shape"], broadcast_dimensions=dims)


def _cut(eqn: Equation, x: BCOO) -> BCOO:
    starts, limits, strides = (eqn.params[k] for k in ("start_indices", "limit_indices", "strides"))
    return pieces.bcoo_slice(x, start_indices=starts, limit_indices=limits, strides=strides)


def _gather_sparse(eqn: Equation, x: Any, starts: Any) -> BCOO:
    if not is_sparse(x):
        raise _refusal_error(eqn, (x, starts))
    params = eqn.params
    return pieces.bcoo_gather(
        x, as_array(starts), params["dimension_numbers"], params["slice_sizes"], mode=params["mode"]
    )


def _convolve_sparse(eqn: Equation, x: Any, y: Any) -> BCOO:
    given = {k: eqn.params[k] for k in _WINDOWS}
    dense = [v if is_sparse(v) else as_array(v) for v in (x, y)]
    return bcoo_conv_general_dilated(*dense, **given)


_WINDOWS = (
    "window_strides padding lhs_dilation rhs_dilation dimension_numbers feature_group_count batch_group_count "
    "preferred_element_type".split()
)
_REGIONS: dict[Op, Callable[..., list[Any]]] = {
    cond_p: regions.branches,
    while_p: regions.while_loop,
    scan_p: regions.scan,
}
_RULES: dict[Op, Callable[..., Any]] = {
    add_p: _sum,
    sub_p: _sum,
    mul_p: _product,
    div_p: _quotient,
    real_p: _of_parts,
    imag_p: _of_parts,
    conj_p: _of_parts,
    dot_general_p: _dot,
    convert_element_type_p: lambda eqn, x: x.astype(eqn.params["new_dtype"]),
    reduce_sum_p: lambda eqn, x: x.sum(tuple(eqn.params["axes"])),
    transpose_p: lambda eqn, x: x.transpose(eqn.params["permutation"]),
    squeeze_p: lambda eqn, x: pieces.bcoo_squeeze(x, dimensions=eqn.params["dimensions"]),
    rev_p: lambda eqn, x: pieces.bcoo_rev(x, eqn.params["dimensions"]),
    reshape_p: _reshape_sparse,
    slice_p: _cut,
    dynamic_slice_p: _window,
    gather_p: _gather_sparse,
    conv_general_dilated_p: _convolve_sparse,
    concatenate_p: _concatenate,
    broadcast_in_dim_p: _broadcast_sparse,
}


# -- indices of arrays -------------------------------------------------------------------------------------------------------------


def _getitem(self: BCOO, index: Any) -> BCOO:
    """``m[index]`` for ints, slices, None, ... and arrays of ints: the elements there, still sparse."""
    return sparsify(lambda m: m[index])(self)


def _iter(self: BCOO) -> Iterator[BCOO]:
    if not self.ndim:
        raise TypeError("iteration over a 0-d array")
    return (self[i] for i in range(self.shape[0]))


BCOO.__getitem__ = _getitem
BCOO.__iter__ = _iter
