"""Derivatives as users ask for them: grad, vjp, jvp, linearize, Jacobians."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import float0, issubdtype
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_map, tree_structure, tree_unflatten
from shardwise.ir import eval_program, tracing
from shardwise.ops.convert import as_array, as_value
from shardwise.ops.derivative import filled
from shardwise.ops.reshape import reshape
from shardwise.transforms.jvp import JVPTrace, JVPTracer, conformed, is_differentiable, tangent_type, zeros
from shardwise.transforms.linearize import Linearized, linearize_flat, transpose_program
from shardwise.transforms.vmap import vmap


def _values(tree: Any) -> tuple[list[Any], PyTreeDef]:
    leaves, structure = tree_flatten(tree)
    return [as_array(as_value(x)) for x in leaves], structure


def _flat_function(
    fun: Callable[..., Any], structure: PyTreeDef, has_aux: bool = False
) -> tuple[Callable[..., list[Any]], list[Any]]:
    """`fun` on flat values; the list gets the output structure and, with `has_aux`, the aux tree, when it runs."""
    notes: list[Any] = [None, None]

    def flat(*leaves: Any) -> list[Any]:
        out = fun(*tree_unflatten(structure, leaves))
        if has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                raise TypeError(
                    f"expected function with aux output to return a two-element tuple, but got type {type(out)} with value {out!r}"
                )
            out, notes[1] = out
        outs, notes[0] = tree_flatten(out)
        return [as_array(as_value(o)) for o in outs]

    return flat, notes


def _host_zero(aval: Any) -> Any:
    """The tangent of an integer: a NumPy array of float0."""
    return np.zeros(aval.shape, float0)


def _tangent_in(primal: Any, tangent: Any, what: str) -> Any:
    if not is_differentiable(primal.aval):
        return None
    value = as_array(as_value(tangent))
    if value.shape != primal.shape:
        raise ValueError(f"{what} called with different primal and tangent shapes; got primal shape {primal.shape} and tangent shape "
                         f"{value.shape}.")  # fmt: skip
    if value.dtype != primal.dtype:
        raise TypeError(f"primal and tangent arguments to {what} do not match; dtypes must be equal, or in case of "
                        f"int/bool primal dtype the "
                        f"tangent dtype must be float0. Got primal dtype {primal.dtype} and so expected tangent dtype "
                        f"{primal.dtype}, but got "
                        f"tangent dtype {value.dtype} instead.")  # fmt: skip
    return value


@user_facing
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """``(fun(*primals), directional derivative along tangents)``; with `has_aux` also the aux output."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(f"primal and tangent arguments to jax.jvp must be tuples or lists; found {type(primals).__name__} and "
                        f"{type(tangents).__name__}.")  # fmt: skip
    ps, structure = _values(tuple(primals))
    tangent_leaves, t_structure = tree_flatten(tuple(tangents))
    if structure != t_structure:
        raise TypeError(f"primal and tangent arguments to jax.jvp must have the same tree structure; primals have {structure} whereas "
                        f"tangents have {t_structure}.")  # fmt: skip
    ts = [_tangent_in(p, t, "jax.jvp") for p, t in zip(ps, tangent_leaves, strict=True)]
    flat, notes = _flat_function(fun, structure, has_aux)
    trace = JVPTrace()
    with tracing(trace):
        outs = flat(*[p if t is None else JVPTracer(trace, p, t) for p, t in zip(ps, ts, strict=True)])
    trace.closed = True
    pairs = [trace.unwrap(o) for o in outs]
    out = tree_unflatten(notes[0], [p for p, _ in pairs])
    tangent = tree_unflatten(notes[0], [_tangent_out(p, t) for p, t in pairs])
    return (out, tangent, _plain(notes[1], trace)) if has_aux else (out, tangent)


def _plain(tree: Any, trace: JVPTrace) -> Any:
    return tree_map(lambda x: trace.unwrap(x)[0], tree)


def _tangent_out(primal: Any, tangent: Any) -> Any:
    if not is_differentiable(primal.aval):
        return _host_zero(primal.aval)
    return zeros(tangent_type(primal.aval)) if tangent is None else conformed(tangent, primal.aval)


@user_facing
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """``(fun(*primals), f_jvp)`` where `f_jvp` maps tangents at `primals` without running `fun` again."""
    ps, structure = _values(primals)
    flat, notes = _flat_function(fun, structure, has_aux)
    lin = linearize_flat(flat, ps)

    def f_jvp(*tangents: Any) -> Any:
        leaves, t_structure = tree_flatten(tangents)
        if t_structure != structure:
            raise ValueError(
                f"linearized function called on tangent values with structure {t_structure}, expected {structure}."
            )
        ts = [_tangent_in(p, t, "the linearized function") for p, t in zip(ps, leaves, strict=True)]
        given = [ts[i] for i in lin.ins]
        outs = eval_program(lin.program, [*lin.residuals, *given])
        found = dict(zip(lin.outs, outs, strict=True))
        return tree_unflatten(notes[0], [_tangent_out(r, found.get(i)) for i, r in enumerate(lin.results)])

    out = tree_unflatten(notes[0], lin.results)
    return (out, f_jvp, _strip(notes[1])) if has_aux else (out, f_jvp)


def _strip(tree: Any) -> Any:
    return tree_map(lambda x: x.primal if isinstance(x, JVPTracer) and x.owner.closed else x, tree)


@user_facing
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Any = ()) -> Any:
    """``(fun(*primals), f_vjp)`` where `f_vjp` maps a cotangent of the result to a tuple of cotangents of `primals`."""
    if reduce_axes:
        raise NotImplementedError(
            "reduce_axes is not supported; sum the cotangents with psum inside shard_map instead."
        )
    ps, structure = _values(primals)
    flat, notes = _flat_function(fun, structure, has_aux)
    lin = linearize_flat(flat, ps)
    out_structure = notes[0]

    def f_vjp(cotangent: Any) -> Any:
        leaves, found = tree_flatten(cotangent)
        if found != out_structure:
            raise ValueError(
                f"unexpected tree structure of argument to vjp function: got {found}, but expected to match {out_structure}"
            )
        cts = _pull_back(lin, [_cotangent_in(r, c) for r, c in zip(lin.results, leaves, strict=True)], len(ps))
        return tree_unflatten(structure, [_cotangent_out(p, c) for p, c in zip(ps, cts, strict=True)])

    out = tree_unflatten(out_structure, lin.results)
    return (out, f_vjp, _strip(notes[1])) if has_aux else (out, f_vjp)


def _cotangent_in(result: Any, ct: Any) -> Any:
    if not is_differentiable(result.aval) or (isinstance(ct, np.ndarray) and ct.dtype == float0):
        return None
    value = as_array(as_value(ct))
    if value.shape != result.shape:
        raise ValueError(f"Shape of cotangent input to vjp pullback function {value.shape} must be the same as the "
                         f"shape of corresponding primal "
                         f"input {result.shape}.")  # fmt: skip
    if value.dtype != result.dtype:
        raise ValueError(f"unexpected JAX type (e.g. shape/dtype) for argument to vjp function: got {value.aval.str_short()}, but expected "
                         f"{result.aval.str_short()} because the corresponding output of the differentiated function "
                         f"had that type.")  # fmt: skip
    if result.aval.mesh is not None and value.aval.mesh is not None and value.aval.spec != result.aval.spec:
        raise ValueError(f"the cotangent {value.aval.str_short()} is laid out otherwise than the result {result.aval.str_short()}; "
                         "reshard it first.")  # fmt: skip
    return value


def _pull_back(lin: Linearized, cts: Sequence[Any], count: int) -> list[Any]:
    """One cotangent per primal input; None where zero or not differentiable."""
    found = transpose_program(lin.program, lin.residuals, [cts[i] for i in lin.outs])
    by_input = dict(zip(lin.ins, found, strict=True))
    return [by_input.get(i) for i in range(count)]


def _cotangent_out(primal: Any, ct: Any) -> Any:
    if not is_differentiable(primal.aval):
        return _host_zero(primal.aval)
    return zeros(tangent_type(primal.aval)) if ct is None else ct


def _check_argnums(argnums: Any, args: tuple[Any, ...], name: str) -> tuple[int, ...]:
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in nums:
        if not -len(args) <= n < len(args):
            raise ValueError(f"differentiating with respect to argnums={argnums} requires at least "
                             f"{max(n, -n - 1) + 1} positional arguments to be "
                             f"passed by the caller, but got only {len(args)} positional arguments.")  # fmt: skip
    return tuple(n % len(args) for n in nums)


def _check_input(x: Any, holomorphic: bool, allow_int: bool, name: str) -> None:
    dtype = x.dtype
    if holomorphic:
        if not issubdtype(dtype, np.complexfloating):
            raise TypeError(f"{name} with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
    elif issubdtype(dtype, np.complexfloating):
        raise TypeError(f"{name} requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got {dtype.name}. For "
                        "holomorphic differentiation, pass holomorphic=True; for complex functions use vjp.")  # fmt: skip
    elif not allow_int and not issubdtype(dtype, np.floating):
        raise TypeError(f"{name} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
                        f"np.inexact), but got {dtype.name}. "
                        "If you want to use Boolean- or integer-valued inputs, use vjp or set allow_int to True.")  # fmt: skip


def _check_scalar(out: Any, holomorphic: bool, name: str) -> Any:
    leaves, structure = tree_flatten(out)
    if structure != tree_structure(0) or not hasattr(leaves[0], "aval"):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {out!r}.")
    value = leaves[0]
    if value.ndim:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {value.shape}.")
    wanted = np.complexfloating if holomorphic else np.floating
    if not issubdtype(value.dtype, wanted):
        kind = "complex" if holomorphic else "real"
        raise TypeError(f"{name} requires {kind}-valued outputs (output dtype that is a sub-dtype of np.{wanted.__name__}), but got "
                        f"{value.dtype.name}.")  # fmt: skip
    return value


def value_and_grad(fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False,
                   reduce_axes: Any = ()) -> Callable[..., Any]:  # fmt: skip
    """A function that gives ``(fun(...), gradient)``; with `has_aux` ``((value, aux), gradient)``."""

    @functools.wraps(fun)
    @user_facing
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nums = _check_argnums(argnums, args, "grad")
        chosen = [args[n] for n in nums]
        for leaf in tree_flatten(chosen)[0]:
            _check_input(as_value(leaf), holomorphic, allow_int, "grad")

        def partial(*picked: Any) -> Any:
            full_args = list(args)
            for n, value in zip(nums, picked, strict=True):
                full_args[n] = value
            return fun(*full_args, **kwargs)

        out, pull, *aux = vjp(partial, *chosen, has_aux=has_aux, reduce_axes=reduce_axes)
        value = _check_scalar(out, holomorphic, "grad")
        one = filled(value.aval, 1)
        grads = pull(tree_unflatten(tree_structure(out), [one]))
        gradient = grads[0] if isinstance(argnums, int) else tuple(grads)
        return ((out, aux[0]), gradient) if has_aux else (out, gradient)

    return wrapped


def grad(fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False,
         reduce_axes: Any = ()) -> Callable[..., Any]:  # fmt: skip
    """A function that gives the gradient of the scalar function `fun` in its arguments `argnums`."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @functools.wraps(fun)
    @user_facing
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        out, gradient = both(*args, **kwargs)
        return (gradient, out[1]) if has_aux else gradient

    return wrapped


def _basis(values: Sequence[Any]) -> list[Any]:
    """One-hot tangents: for each value an array with a leading dim over all elements of all values."""
    total = sum(v.size for v in values)
    out, start = [], 0
    for v in values:
        rows = np.zeros((total, v.size), v.dtype)
        rows[start : start + v.size] = np.eye(v.size, dtype=v.dtype)
        out.append(as_array(rows.reshape(total, *v.shape)))
        start += v.size
    return out


def _split(stacked: Any, values: Sequence[Any], leading: bool) -> list[Any]:
    """A Jacobian over all elements as one array per value, its element dims unfolded."""
    from shardwise.ops.pieces import slice_in_dim

    out, start = [], 0
    for v in values:
        axis = 0 if leading else stacked.ndim - 1
        part = slice_in_dim(stacked, start, start + v.size, axis=axis)
        rest = stacked.shape[1:] if leading else stacked.shape[:-1]
        out.append(reshape(part, (*v.shape, *rest) if leading else (*rest, *v.shape)))
        start += v.size
    return out


def jacfwd(
    fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """The Jacobian by forward mode, one column per input element: for tall Jacobians."""

    @functools.wraps(fun)
    @user_facing
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nums = _check_argnums(argnums, args, "jacfwd")
        chosen = tuple(args[n] for n in nums)
        ps, structure = _values(chosen)
        for p in ps:
            _check_input(p, holomorphic, False, "jacfwd")
        aux: list[Any] = []

        def partial(*leaves: Any) -> Any:
            full_args = list(args)
            for n, value in zip(nums, tree_unflatten(structure, leaves), strict=True):
                full_args[n] = value
            out = fun(*full_args, **kwargs)
            if has_aux:
                aux[:] = [out[1]]
                return out[0]
            return out

        def push(*tangents: Any) -> Any:
            return jvp(partial, tuple(ps), tangents)[1]

        columns = vmap(push, out_axes=-1)(*_basis(ps))
        jacobian = tree_map(lambda c: _argument_tree(_split(c, ps, leading=False), structure, argnums), columns)
        return (jacobian, _strip(aux[0])) if has_aux else jacobian

    return wrapped


def _argument_tree(parts: list[Any], structure: PyTreeDef, argnums: Any) -> Any:
    tree = tree_unflatten(structure, parts)
    return tree[0] if isinstance(argnums, int) else tree


def jacrev(fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False,
           allow_int: bool = False) -> Callable[..., Any]:  # fmt: skip
    """The Jacobian by reverse mode, one row per output element: for wide Jacobians."""

    @functools.wraps(fun)
    @user_facing
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nums = _check_argnums(argnums, args, "jacrev")
        chosen = tuple(args[n] for n in nums)
        for leaf in tree_flatten(chosen)[0]:
            _check_input(as_value(leaf), holomorphic, allow_int, "jacrev")

        def partial(*picked: Any) -> Any:
            full_args = list(args)
            for n, value in zip(nums, picked, strict=True):
                full_args[n] = value
            return fun(*full_args, **kwargs)

        out, pull, *aux = vjp(partial, *chosen, has_aux=has_aux)
        outs, out_structure = tree_flatten(out)
        rows = vmap(lambda *cts: pull(tree_unflatten(out_structure, cts)))(*_basis(outs))
        leaves, structure = tree_flatten(rows)
        split = [_split(leaf, outs, leading=True) for leaf in leaves]
        per_out = [_argument_tree([s[i] for s in split], structure, argnums) for i in range(len(outs))]
        jacobian = tree_unflatten(out_structure, per_out)
        return (jacobian, aux[0]) if has_aux else jacobian

    return wrapped


jacobian = jacrev


def hessian(
    fun: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Second derivatives, forward over reverse."""
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


@user_facing
def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Any = ()) -> Callable[[Any], Any]:
    """The transpose of a function that is linear in its arguments; `primals` give types only (arrays or ShapeDtypeStructs)."""
    from shardwise.ir import trace_program

    if reduce_axes:
        raise NotImplementedError("reduce_axes is not supported; sum with psum inside shard_map instead.")
    leaves, structure = tree_flatten(primals)
    types = [x.aval if hasattr(x, "aval") else as_value(x).aval for x in leaves]
    flat, _ = _flat_function(fun, structure)
    program, consts = trace_program(flat, types, "linear")

    def transposed(cotangent: Any) -> Any:
        cts, _ = tree_flatten(cotangent)
        found = transpose_program(program, consts, [as_array(as_value(c)) for c in cts])
        return tree_unflatten(structure, [zeros(t) if c is None else c for c, t in zip(found, types, strict=True)])

    return transposed
