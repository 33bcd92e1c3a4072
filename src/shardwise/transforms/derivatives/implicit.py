"""Derivatives of the results of iterations: `custom_linear_solve` and `custom_root`, by the equation that the result satisfies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tree import PyTreeDef, tree_flatten, tree_map, tree_unflatten
from shardwise.ir import Program, ShapedArray, Shown, Tracer, Var, bind, trace_program
from shardwise.ir.op import Params, UndefinedPrimal
from shardwise.ops.elementwise.casts import stop_gradient
from shardwise.ops.rules.derivative import do, full_in_front
from shardwise.transforms.derivatives.arguments import flat_arrays
from shardwise.transforms.derivatives.autodiff import jvp, linear_transpose, linearize
from shardwise.transforms.derivatives.custom_derivatives import with_arguments_for
from shardwise.transforms.derivatives.custom_jvp import custom_jvp
from shardwise.transforms.derivatives.custom_rules import define_call, function_name, zero_tangent
from shardwise.transforms.interpreters.batch_trace import batch_program
from shardwise.transforms.interpreters.jvp import cotangent_zeros, zeros
from shardwise.transforms.interpreters.vmap import vmap

Flat = Callable[[Sequence[Any], Sequence[Any]], list[Any]]  # (captured values, vectors) -> vectors
TracedProgram = tuple[Program, list[Any]]  # a program, and its captured values


def _closure_converted(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`closure_convert` that hoists integers, too: derivative rules run after the trace that made them has ended."""
    return with_arguments_for(lambda c: isinstance(c, Tracer), fun, *example_args)


# -- linear systems ----------------------------------------------------------------------------------------------------------


def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[..., Any],
    transpose_solve: Callable[..., Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """x with ``matvec(x) == b``, found by ``solve(matvec, b)``, with the derivatives of an exact solution.

    Args:
        matvec: a linear function; it may close over values being differentiated.
        b: the right-hand side, an array or a tree.
        solve: may be any iteration; it is never differentiated.
        transpose_solve: ``transpose_solve(vecmat, ct)`` solves the transposed system; needed for reverse mode unless `symmetric`.
        symmetric: `matvec` is its own transpose.
        has_aux: the solvers return ``(x, aux)``.

    Raises TypeError if `matvec` or a solver returns another structure than that of `b`, ValueError for other types.

    >>> a = jnp.array([[2.0, 1.0], [1.0, 3.0]])
    >>> solve = lambda matvec, b: jnp.linalg.solve(jax.jacobian(matvec)(b), b)
    >>> lax.custom_linear_solve(lambda x: a @ x, jnp.array([3.0, 4.0]), solve, symmetric=True)
    Array([1., 1.], dtype=float32)
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, tree = flat_arrays(b)
    types = [x.aval for x in leaves]
    converted_matvec, captured_values = _closure_converted(matvec, b)
    aux_tree: list[PyTreeDef] = []

    def flat_matvec(consts: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
        return _check_output("matvec", converted_matvec(tree_unflatten(tree, vectors), *consts), tree, types)

    trace_program(lambda *vs: flat_matvec(captured_values, vs), types, "matvec")  # raises if it does not fit b

    def vecmat(consts: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        if symmetric:
            return flat_matvec(consts, cts)
        back = linear_transpose(lambda *vs: flat_matvec(consts, vs), *cts)
        return list(back(list(cts)))

    def solver(function: Callable[..., Any], product: Flat, name: str) -> Flat:
        def run(consts: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
            def multiply(x: Any) -> Any:
                return tree_unflatten(tree, product(consts, flat_arrays(x)[0]))

            solution = function(multiply, tree_unflatten(tree, vectors))
            aux: list[Any] = []
            if has_aux:
                solution, extra = solution
                aux, structure = flat_arrays(extra)
                aux_tree[:] = [structure]
            return [*_check_output(name, solution, tree, types), *aux]

        return run

    back = transpose_solve
    outs = _bind_solve(
        captured_values,
        leaves,
        solver(solve, flat_matvec, "solve"),
        None if back is None else solver(back, vecmat, "transpose_solve"),
        flat_matvec,
        vecmat,
    )
    x = tree_unflatten(tree, outs[: len(leaves)])
    return (x, tree_unflatten(aux_tree[0], outs[len(leaves) :])) if has_aux else x


def _bind_solve(
    consts: Sequence[Any], vectors: Sequence[Any], forward: Flat, backward: Flat | None, matvec: Flat, vecmat: Flat
) -> list[Any]:
    """Bind the op. Its operands are the captured values of the solvers, those of the matrix, and the right-hand side."""
    n = len(consts)
    types = [x.aval for x in (*consts, *vectors)]
    solve = trace_program(lambda *xs: forward(xs[:n], xs[n:]), types, "solve")
    back = None
    if backward is not None:
        back = trace_program(lambda *xs: backward(xs[:n], xs[n:]), types, "transpose_solve")
    return _bound_programs([*consts, *vectors], 0, n, solve, back, matvec, vecmat)


def _bound_programs(
    operands: Sequence[Any],
    first: int,
    known: int,
    solve: TracedProgram,
    back: TracedProgram | None,
    matvec: Flat,
    vecmat: Flat,
) -> list[Any]:
    """Bind the op with two traced programs of the operands; their captured values become operands before all others."""
    program, own = solve
    back_program, others = back or (None, [])
    if back_program is not None:
        back_program = _with_inputs(back_program, [x.aval for x in own], 0)
    program = _with_inputs(program, [x.aval for x in others], len(own))
    more = len(own) + len(others)
    return bind(
        linear_solve_op,
        *own,
        *others,
        *operands,
        program=program,
        back=back_program,
        first=more + first,
        known=more + known,
        matvec=matvec,
        vecmat=vecmat,
    )


def _with_inputs(program: Program, types: Sequence[ShapedArray], at: int) -> Program:
    """The program with additional unused inputs."""
    inputs = (*program.inputs[:at], *map(Var, types), *program.inputs[at:])
    return Program(inputs, program.equations, program.outputs, 0, program.name)


def _check_output(name: str, found: Any, tree: PyTreeDef, types: Sequence[ShapedArray], of: str = "b") -> list[Any]:
    outs, out_tree = flat_arrays(found)
    if out_tree != tree:
        raise TypeError(
            f"{name}() output pytree structure must match that of {of}, got output structure {out_tree} and that of {of} {tree}."
        )
    for out, t in zip(outs, types, strict=True):
        if out.shape != t.shape or out.dtype != t.dtype:
            raise ValueError(
                f"{name}() output must have the shapes and dtypes of {of}: got {out.aval.str_short()} for {t.str_short()}."
            )
    return outs


def _solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    """x' = a^-1 (b' - a' x); values that only the solver captures do not matter."""
    first, known_end, matvec = params["first"], params["known"], params["matvec"]
    outs = bind(linear_solve_op, *primals, **params)
    consts, vectors = primals[first:known_end], primals[known_end:]
    x = outs[: len(vectors)]
    right = [zeros(v.aval) if t is None else t for v, t in zip(vectors, tangents[known_end:], strict=True)]
    if any(t is not None for t in tangents[first:known_end]):
        along = tuple(
            zero_tangent(c) if t is None else t for c, t in zip(consts, tangents[first:known_end], strict=True)
        )
        _, matvec_change = jvp(lambda *cs: matvec(cs, x), tuple(consts), along)
        right = [do.sub(r, m) for r, m in zip(right, matvec_change, strict=True)]
    touts = bind(linear_solve_op, *primals[:known_end], *right, **params)[: len(vectors)]
    return outs, [*touts, *[None] * (len(outs) - len(vectors))]


def _solve_transpose(
    cts: Sequence[Any],
    *args: Any,
    program: Program,
    back: Program | None,
    matvec: Flat,
    vecmat: Flat,
    first: int,
    known: int,
) -> list[Any]:
    """The transposed system: matrix and solvers are swapped."""
    if back is None:
        raise TypeError(
            "transpose_solve required for backwards mode automatic differentiation of custom_linear_solve; or say "
            "symmetric=True."
        )
    vectors = args[known:]
    given = [cotangent_zeros(v.aval) if c is None else c for c, v in zip(cts, vectors, strict=False)]
    cotangents = bind(
        linear_solve_op,
        *args[:known],
        *given,
        program=back,
        back=program,
        matvec=vecmat,
        vecmat=matvec,
        first=first,
        known=known,
    )
    return [None] * known + [
        c if isinstance(v, UndefinedPrimal) else None for c, v in zip(cotangents, vectors, strict=False)
    ]


def _solve_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """All functions mapped; every vector has its mapped dim in front."""
    first, known_end = params["first"], params["known"]
    const_dims = tuple(dims[first:known_end])
    vectors = [full_in_front(size, v, d) for v, d in zip(values[known_end:], dims[known_end:], strict=True)]
    operands = [*values[:known_end], *vectors]
    all_dims = [*dims[:known_end], *[0] * len(vectors)]

    def map_function(function: Flat) -> Flat:
        both = vmap(function, (const_dims, 0), axis_size=size)
        return lambda consts, xs: list(both(tuple(consts), list(xs)))

    def mapped_program(program: Program) -> TracedProgram:
        def run(*xs: Any) -> list[Any]:
            outs, result_dims = batch_program(program, size, axis_name, xs, all_dims)
            return [full_in_front(size, o, d) for o, d in zip(outs, result_dims, strict=True)]

        return trace_program(run, [x.aval for x in operands], program.name)

    back = None if params["back"] is None else mapped_program(params["back"])
    solve = mapped_program(params["program"])
    outs = _bound_programs(
        operands, first, known_end, solve, back, map_function(params["matvec"]), map_function(params["vecmat"])
    )
    return outs, [0] * len(outs)


linear_solve_op = define_call(
    "custom_linear_solve",
    jvp=_solve_jvp,
    transpose=_solve_transpose,
    batch=_solve_batch,
    shown=Shown(aliases=("linear_solve",)),
)


# -- roots ---------------------------------------------------------------------------------------------------------------------


def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[..., Any],
    tangent_solve: Callable[..., Any],
    has_aux: bool = False,
) -> Any:
    """x with ``f(x) == 0``, found by ``solve(f, initial_guess)``, with derivatives by the implicit function theorem.

    Args:
        f: may close over values being differentiated; maps x to something of its structure.
        initial_guess: where the solver starts; no derivative flows to it.
        solve: may be any iteration; it is never differentiated.
        tangent_solve: ``tangent_solve(g, y)`` solves ``g(x) == y`` for a linear g; for reverse mode it must be transposable.
        has_aux: `solve` returns ``(x, aux)``.

    Raises TypeError if `f` or a solver returns another structure than that of `initial_guess`.

    >>> def newton(f, x):
    ...     return lax.fori_loop(0, 20, lambda _, x: x - f(x) / (2 * x), x)
    >>> lax.custom_root(lambda x: x**2 - 4.0, 1.0, newton, lambda g, y: y / g(1.0)).round(3)
    Array(2., dtype=float32, weak_type=True)
    """

    start = stop_gradient(initial_guess)
    guess, tree = flat_arrays(initial_guess)
    types = [x.aval for x in guess]
    trace_program(lambda *xs: _check_output("f", f(tree_unflatten(tree, xs)), tree, types, "initial_guess"), types, "f")
    # Captured values of the functions become arguments, so that the rule below sees their values and tangents.
    converted_f, own = _closure_converted(f, initial_guess)
    converted_solve, solver_values = _closure_converted(lambda guess: solve(f, guess), start)
    tangent, tangent_values = _closure_converted(lambda x, y: tangent_solve(linearize(f, x)[1], y), start, start)
    n, m = len(own), len(own) + len(solver_values)

    @custom_jvp
    def root(start: Any, *values: Any) -> Any:
        result = converted_solve(start, *values[n:m])
        return result if has_aux else (result, ())

    @root.defjvp
    def root_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        x, aux = root(*primals)
        primals, tangents = primals[1:], tangents[1:]
        _, f_change = jvp(lambda *cs: converted_f(x, *cs), primals[:n], tangents[:n])
        dx = tangent(x, tree_map(do.neg, f_change), *primals[m:])
        return (x, aux), (dx, tree_map(lambda v: zeros(v.aval) if hasattr(v, "aval") else v, aux))

    x, aux = root(start, *own, *solver_values, *tangent_values)
    if tree_flatten(x)[1] != tree:
        raise TypeError(
            f"custom_root: {function_name(solve)} must give the structure of the initial guess, {tree}, got "
            f"{tree_flatten(x)[1]}."
        )
    return (x, aux) if has_aux else x
