"""The functions that compute derivatives: grad, vjp, jvp, linearize."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from shardwise.base.signatures import P, R
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.ir import Array, check_leaks, current_trace, tracing
from shardwise.ir.references import hold_references, is_reference
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import full_cotangent
from shardwise.transforms.derivatives.arguments import call_with, check_argnums, check_input, check_output, split_aux
from shardwise.transforms.derivatives.reference_arguments import (
    References,
    array_of,
    flat_primals,
    leave_made,
    made_references,
    reference_tangent,
    references_among,
    store_all,
    store_last,
)
from shardwise.transforms.interpreters.jvp import JVPTrace, JVPTracer
from shardwise.transforms.interpreters.linear_maps import (
    linear_map,
    pull_function,
    push_function,
    tangent_in,
    tangent_out,
)
from shardwise.transforms.interpreters.linear_transpose import linear_transpose as linear_transpose
from shardwise.transforms.interpreters.linearize import linearize_flat
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.tracing import describe


def _flat_function(
    fun: Callable[..., Any], structure: PyTreeDef, has_aux: bool, references: References
) -> tuple[Callable[..., list[Any]], list[Any]]:
    """`fun` on flat values; at the positions of `references` on their arrays, whose last ones it gives after its results.

    Running it fills the list with the output structure, with `has_aux` the aux tree, the trace, and what `_keep_untouched` has to know of
    each result.
    """
    notes: list[Any] = [None, None, None, None]

    def flat(*leaves: Any) -> list[Any]:
        notes[2] = current_trace()
        given = [references.get(i, leaf) for i, leaf in enumerate(leaves)]
        with hold_references([*references.values()], [leaves[i] for i in references]):
            out = fun(*tree_unflatten(structure, given))
            if has_aux:
                out, notes[1] = split_aux(out)
            outs, notes[0] = tree_flatten(out)
            places = {id(leaf): i for i, leaf in enumerate(given)}
            notes[3] = [(places.get(id(o)), None if isinstance(o, Array) else o) for o in outs]
            results = [o.held() if is_reference(o) else as_array(as_value(o)) for o in outs]
            return results + [r.held() for r in references.values()]

    return flat, notes


def _keep_untouched(found: Sequence[tuple[int | None, Any]], given: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The results, except that an argument which `fun` returns unchanged is the caller's object, and a non-array result is `fun`'s."""
    return [
        given[i] if i is not None else out if own is None else own for (i, own), out in zip(found, results, strict=True)
    ]


@user_facing
@overload
def jvp(
    fun: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any], has_aux: Literal[False] = False
) -> tuple[R, R]: ...
@overload
def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: Literal[True]
) -> tuple[Any, Any, Any]: ...
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """``(fun(*primals), directional derivative along tangents)``; with `has_aux` also the aux output.

    The tangent of a Ref is a Ref: what `fun` writes to the one has its directional derivative written to the other. So has a Ref that
    `fun` makes and returns.

    Raises:
        TypeError: `primals` and `tangents` are no tuples or lists, or differ in structure, shapes or dtypes.

    >>> jax.jvp(lambda x: x**2, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            f"primal and tangent arguments to jax.jvp must be tuples or lists; found {type(primals).__name__} and "
            f"{type(tangents).__name__}."
        )
    ps, structure = flat_primals(primals)
    tangent_leaves, t_structure = tree_flatten(tuple(tangents))
    if structure != t_structure or isinstance(primals, tuple) != isinstance(tangents, tuple):
        raise TypeError(
            "primal and tangent arguments to jax.jvp must have the same tree structure; primals have "
            f"{tree_structure(primals)} whereas tangents have {tree_structure(tangents)}."
        )
    references = references_among(fun, "jvp", primals)
    ts = [
        reference_tangent(p.aval, t) if i in references else tangent_in(p.aval, array_of(t), "jax.jvp")
        for i, (p, t) in enumerate(zip(ps, tangent_leaves, strict=True))
    ]
    flat, notes = _flat_function(fun, structure, has_aux, references)
    trace = JVPTrace()
    with tracing(trace):
        outs = flat(*[p if t is None else JVPTracer(trace, p, t) for p, t in zip(ps, ts, strict=True)])
    trace.closed = True
    pairs = [trace.unwrap(o) for o in outs]
    for (i, r), (primal, tangent) in zip(references.items(), pairs[len(notes[3]) :], strict=True):
        store_last(r, ps[i], primal)
        if ts[i] is not None and tangent is not ts[i]:
            tangent_leaves[i].store(tangent_out(primal.aval, tangent))
    del pairs[len(notes[3]) :]
    new_references = made_references(notes[3], trace, [p for p, _ in pairs])
    out = tree_unflatten(notes[0], _keep_untouched(notes[3], tree_leaves(tuple(primals)), [p for p, _ in pairs]))
    tangents_out = [tangent_out(p.aval, t) for p, t in pairs]
    tangents_out = [new_references[i].another(t) if i in new_references else t for i, t in enumerate(tangents_out)]
    tangent = tree_unflatten(notes[0], _keep_untouched([(i, None) for i, _ in notes[3]], tangent_leaves, tangents_out))
    return (out, tangent, strip_tangents(notes[1], trace)) if has_aux else (out, tangent)


@user_facing
@overload
def linearize(fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False) -> tuple[R, Callable[..., R]]: ...
@overload
def linearize(
    fun: Callable[..., Any], *primals: Any, has_aux: Literal[True]
) -> tuple[Any, Callable[..., Any], Any]: ...
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """``(fun(*primals), f_jvp)`` where `f_jvp` maps tangents at `primals` without running `fun` again.

    `f_jvp` is a pytree whose leaves are its residuals: it may be returned from and given to compiled functions. With
    `has_aux`, `fun` returns a pair, whose second part comes as the third result. Tangents of Refs are Refs, as for `jvp`.

    >>> y, f_jvp = jax.linearize(lambda x: x**2, 3.0)
    >>> y, f_jvp(1.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    ps, structure = flat_primals(primals)
    references = references_among(fun, "linearize", primals)
    flat, notes = _flat_function(fun, structure, has_aux, references)
    lin = linearize_flat(flat, ps)
    results = lin.results[: len(notes[3])]
    store_all(references, ps, lin.results[len(results) :])
    made_references(notes[3], notes[2], results)
    returned_references = [(i, type(own), place) for i, (place, own) in enumerate(notes[3]) if is_reference(own)]
    f_jvp = push_function(linear_map(lin, ps, structure, notes[0], references, returned_references), lin.residuals)
    out = tree_unflatten(notes[0], _keep_untouched(notes[3], tree_leaves(primals), results))
    notes[1] = strip_tangents(notes[1], notes[2])
    check_leaks(notes[2], "linearize")
    return (out, f_jvp, notes[1]) if has_aux else (out, f_jvp)


def strip_tangents(tree: Any, trace: JVPTrace) -> Any:
    """The tree with the primals of the tracers of `trace`, which has ended. Refs made under it hold primals from now on."""

    def primal(x: Any) -> Any:
        if is_reference(x):
            leave_made(x, trace, lambda value: trace.unwrap(value)[0])
            return x
        return trace.unwrap(x)[0]

    return tree_map(primal, tree)


@user_facing
@overload
def vjp(
    fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False, reduce_axes: Any = ()
) -> tuple[R, Callable[[Any], tuple[Any, ...]]]: ...
@overload
def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: Literal[True], reduce_axes: Any = ()
) -> tuple[Any, Callable[..., tuple[Any, ...]], Any]: ...
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: Any = ()) -> Any:
    """``(fun(*primals), f_vjp)`` where `f_vjp` maps a cotangent of the result to a tuple of cotangents of `primals`.

    `f_vjp` is a pytree whose leaves are its residuals: it may be returned from and given to compiled functions. With
    `has_aux`, `fun` returns a pair, whose second part comes as the third result. `reduce_axes` can only be (). Of a Ref among `primals`
    the values may be used where no cotangent comes back to them; otherwise `f_vjp` raises ValueError.

    >>> y, pull = jax.vjp(lambda x, w: x * w, 2.0, 3.0)
    >>> pull(1.0)
    (Array(3., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    _check_reduce_axes(reduce_axes)
    out, f_vjp, aux, reference_outs = pullback(fun, primals, has_aux)
    leaves, structure = tree_flatten(out)
    out = tree_unflatten(structure, _keep_untouched(reference_outs, tree_leaves(primals), leaves))
    return (out, f_vjp, aux) if has_aux else (out, f_vjp)


def _check_reduce_axes(axes: Any) -> None:
    if axes:
        raise NotImplementedError(
            "reduce_axes is not supported; sum the cotangents with psum inside shard_map instead."
        )


def pullback(fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool) -> tuple[Any, Any, Any, Any]:
    """The result as arrays, the pullback, the aux tree, and the notes for `_keep_untouched`."""
    ps, structure = flat_primals(primals)
    references = references_among(fun, "vjp", primals)
    flat, notes = _flat_function(fun, structure, has_aux, references)
    lin = linearize_flat(flat, ps)
    results = lin.results[: len(notes[3])]
    store_all(references, ps, lin.results[len(results) :])
    made_references(notes[3], notes[2], results)
    returned_references = [(i, type(own), place) for i, (place, own) in enumerate(notes[3]) if is_reference(own)]
    f_vjp = pull_function(linear_map(lin, ps, structure, notes[0], references, returned_references), lin.residuals, ps)
    out = tree_unflatten(notes[0], results)
    notes[1] = strip_tangents(notes[1], notes[2])
    check_leaks(notes[2], "vjp")
    return out, f_vjp, notes[1], notes[3]


def _check_scalar(out: Any, holomorphic: bool) -> Any:
    leaves, structure = tree_flatten(out)
    if structure != tree_structure(0) or not hasattr(leaves[0], "aval"):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {out!r}.")
    value = leaves[0]
    if value.ndim:
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {value.shape}.")
    check_output(value, holomorphic, "grad")
    return value


def value_and_grad(
    fun: Callable[P, R],
    argnums: Any = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable[P, tuple[R, Any]]:
    """A function that gives ``(fun(...), gradient)`` for the scalar function `fun`; with `has_aux` ``((value, aux),
    gradient)``.

    Args:
        argnums: the position or positions of the arguments to differentiate in.
        holomorphic: `fun` is holomorphic, its arguments and results complex.
        allow_int: integer arguments are taken; their gradients are of dtype float0.
        reduce_axes: only (); NotImplementedError otherwise. Use `psum` in `shard_map`.

    Raises:
        TypeError: `fun` is no function, its result is no real scalar, or an argument is no float.

    >>> jax.value_and_grad(lambda x: x**3)(2.0)
    (Array(8., dtype=float32, weak_type=True), Array(12., dtype=float32, weak_type=True))
    """
    if not callable(fun):
        raise TypeError(f"grad: Expected a callable value, got {fun!r}")

    @wraps(fun)
    @user_facing
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nums = check_argnums(argnums, args, "grad")
        chosen = [args[n] for n in nums]
        for leaf in tree_flatten(chosen)[0]:
            check_input(leaf if is_reference(leaf) else as_value(leaf), holomorphic, allow_int, "grad")

        def partial(*picked: Any) -> Any:
            return call_with(fun, args, kwargs, nums, picked)

        _check_reduce_axes(reduce_axes)
        out, pull, aux, reference_outs = pullback(partial, tuple(chosen), has_aux)
        if any(is_reference(own) for _, own in reference_outs):
            raise TypeError(
                "Gradient only defined for scalar-output functions. Output has a Ref: return its array, ref[...]."
            )
        value = _check_scalar(out, holomorphic)
        one = full_cotangent(value.aval, 1)
        grads = pull(tree_unflatten(tree_structure(out), [one]))
        gradient = tuple(grads) if isinstance(argnums, Iterable) else grads[0]
        return ((out, aux), gradient) if has_aux else (out, gradient)

    return describe(wrapper, f"Value and gradient of {{}} with respect to positional argument(s) {argnums}.")


def grad(
    fun: Callable[P, Any],
    argnums: Any = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
) -> Callable[P, Any]:
    """A function that gives the gradient of the scalar function `fun` in its arguments `argnums`: one tree like the
    argument, or a tuple of these if `argnums` is a sequence.

    Args:
        has_aux: `fun` returns a pair (value, aux); so does the result: (derivative, aux).
        holomorphic: `fun` is holomorphic, its arguments and results complex.
        allow_int: integer arguments are taken; their gradients are of dtype float0.
        reduce_axes: only (); NotImplementedError otherwise. Use `psum` in `shard_map`.

    Raises:
        TypeError: `fun` is no function, its result is no real scalar, or an argument is no float.

    >>> jax.grad(lambda x: x**3)(2.0)
    Array(12., dtype=float32, weak_type=True)
    >>> jax.grad(lambda w, x: (w * x).sum(), argnums=1)(jnp.array([1.0, 2.0]), jnp.ones(2))
    Array([1., 2.], dtype=float32)
    """
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @wraps(fun)
    @user_facing
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        out, gradient = both(*args, **kwargs)
        return (gradient, out[1]) if has_aux else gradient

    return describe(wrapper, f"Gradient of {{}} with respect to positional argument(s) {argnums}.")


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two passes of reverse mode as functions: ``fwd(*args) -> (out, residuals)`` and ``bwd(residuals, ct) -> cotangents``.

    `bwd` gives a tuple of cotangents of the arguments `argnums`, or the one of an int. With `has_aux`, `fun` returns a
    pair, and `fwd` the aux as its third result. Both are compiled unless `jitted` is False; `bwd` is compiled once for all calls of `fwd`.

    >>> fwd, bwd = jax.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
    >>> out, residuals = fwd(2.0, 3.0)
    >>> bwd(residuals, 1.0)
    (Array(3., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """

    def fwd(*args: Any, **kwargs: Any) -> Any:
        nums = check_argnums(argnums, args, "fwd_and_bwd")

        def partial(*picked: Any) -> Any:
            return call_with(fun, args, kwargs, nums, picked)

        return vjp(partial, *[args[n] for n in nums], has_aux=has_aux)

    def bwd(residuals: Any, cotangent: Any) -> Any:
        cotangents = residuals(cotangent)
        return cotangents if isinstance(argnums, Iterable) else cotangents[0]

    return (jit(fwd), jit(bwd)) if jitted else (fwd, bwd)
