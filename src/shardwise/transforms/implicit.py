"""Derivatives of what an iteration finds: `custom_linear_solve` and `custom_root`, by the equation that the result satisfies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.base.tree import PyTreeDef, tree_flatten, tree_map, tree_unflatten
from shardwise.ir import Program, ShapedArray, bind, define_op, eval_program, trace_program
from shardwise.ir.op import Params, UndefinedPrimal
from shardwise.ops.derivative import do, full_in_front
from shardwise.transforms.autodiff import jvp, linear_transpose, linearize
from shardwise.transforms.custom_derivatives import closure_convert
from shardwise.transforms.custom_jvp import custom_jvp
from shardwise.transforms.custom_rules import called_type, flat_values, function_name
from shardwise.transforms.jvp import zeros
from shardwise.transforms.vmap import vmap

Flat = Callable[[Sequence[Any], Sequence[Any]], list[Any]]  # (captured values, vectors) -> vectors


# -- linear systems ----------------------------------------------------------------------------------------------------------


def custom_linear_solve(matvec: Callable[[Any], Any], b: Any, solve: Callable[..., Any],
                        transpose_solve: Callable[..., Any] | None = None, symmetric: bool = False,
                        has_aux: bool = False) -> Any:  # fmt: skip
    """x with ``matvec(x) == b``, found by ``solve(matvec, b)``, with the derivatives of an exact solution.

    Args:
        matvec: a linear function; it may close over values being differentiated.
        b: the right-hand side, an array or a tree.
        solve: may be any iteration; it is never differentiated.
        transpose_solve: ``transpose_solve(vecmat, ct)`` solves the transposed system; needed for reverse mode unless `symmetric`.
        symmetric: `matvec` is its own transpose.
        has_aux: the solvers return ``(x, aux)``.

    Raises TypeError where `matvec` or a solver gives another structure or other types than `b` has.
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, tree = flat_values(b)
    types = [x.aval for x in leaves]
    converted, captured = closure_convert(matvec, b)
    aux_tree: list[PyTreeDef] = []

    def flat_matvec(consts: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
        return _checked("matvec", converted(tree_unflatten(tree, vectors), *consts), tree, types)

    def vecmat(consts: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        if symmetric:
            return flat_matvec(consts, cts)
        back = linear_transpose(lambda *vs: flat_matvec(consts, vs), *cts)
        return list(back(list(cts)))

    def solver(function: Callable[..., Any], product: Flat, name: str) -> Flat:
        def run(consts: Sequence[Any], vectors: Sequence[Any]) -> list[Any]:
            def multiply(x: Any) -> Any:
                return tree_unflatten(tree, product(consts, flat_values(x)[0]))

            found = function(multiply, tree_unflatten(tree, vectors))
            aux: list[Any] = []
            if has_aux:
                found, extra = found
                aux, structure = flat_values(extra)
                aux_tree[:] = [structure]
            return [*_checked(name, found, tree, types), *aux]

        return run

    forward = solver(solve, flat_matvec, "solve")
    backward = None if transpose_solve is None else solver(transpose_solve, vecmat, "transpose_solve")
    outs = _solved(captured, leaves, Functions(flat_matvec, vecmat, forward, backward))
    x = tree_unflatten(tree, outs[: len(leaves)])
    return (x, tree_unflatten(aux_tree[0], outs[len(leaves) :])) if has_aux else x


@dataclass(frozen=True)
class Functions:
    """A linear system as functions of the captured values and vectors: the matrix, its transpose, and what solves for both."""

    matvec: Flat
    vecmat: Flat
    solve: Flat
    transpose_solve: Flat | None

    def transposed(self) -> Functions:
        """The system of the transposed matrix."""
        if self.transpose_solve is None:
            raise TypeError("transpose_solve required for backwards mode automatic differentiation of custom_linear_solve; or say "
                            "symmetric=True.")  # fmt: skip
        return Functions(self.vecmat, self.matvec, self.transpose_solve, self.solve)


def _solved(consts: Sequence[Any], vectors: Sequence[Any], functions: Functions) -> list[Any]:
    """Bind the op; its operands are what the solver closes over, what the matrix closes over, and the right-hand side."""
    n = len(consts)
    program, extra = trace_program(
        lambda *xs: functions.solve(xs[:n], xs[n:]), [x.aval for x in (*consts, *vectors)], "solve"
    )
    return bind(linear_solve_op, *extra, *consts, *vectors, program=program, first=len(extra), known=len(extra) + n,
                functions=functions)  # fmt: skip


def _checked(name: str, found: Any, tree: PyTreeDef, types: Sequence[ShapedArray]) -> list[Any]:
    outs, out_tree = flat_values(found)
    if out_tree != tree:
        raise TypeError(
            f"{name}() output pytree structure must match that of b, got output structure {out_tree} and b structure {tree}."
        )
    for out, t in zip(outs, types, strict=True):
        if out.shape != t.shape or out.dtype != t.dtype:
            raise TypeError(
                f"{name}() output must have the shapes and dtypes of b: got {out.aval.str_short()} for {t.str_short()}."
            )
    return outs


def _solve_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, program: Program, first: int, known: int, functions: Functions
) -> Any:
    """x' = a^-1 (b' - a' x); what only the solver closes over does not matter."""
    params: Params = dict(program=program, first=first, known=known, functions=functions)
    outs = bind(linear_solve_op, *primals, **params)
    consts, vectors = primals[first:known], primals[known:]
    x = outs[: len(vectors)]
    right = [zeros(v.aval) if t is None else t for v, t in zip(vectors, tangents[known:], strict=True)]
    if any(t is not None for t in tangents[first:known]):
        along = tuple(zeros(c.aval) if t is None else t for c, t in zip(consts, tangents[first:known], strict=True))
        _, moved = jvp(lambda *cs: functions.matvec(cs, x), tuple(consts), along)
        right = [do.sub(r, m) for r, m in zip(right, moved, strict=True)]
    touts = bind(linear_solve_op, *primals[:known], *right, **params)[: len(vectors)]
    return outs, [*touts, *[None] * (len(outs) - len(vectors))]


def _solve_transpose(
    cts: Sequence[Any], *args: Any, program: Program, first: int, known: int, functions: Functions
) -> list[Any]:
    vectors = args[known:]
    given = [zeros(v.aval) if c is None else c for c, v in zip(cts, vectors, strict=False)]
    found = _solved(args[first:known], given, functions.transposed())
    return [None] * known + [
        c if isinstance(v, UndefinedPrimal) else None for c, v in zip(found, vectors, strict=False)
    ]


def _solve_batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None],
                 params: Params) -> tuple[list[Any], list[int | None]]:  # fmt: skip
    """All functions mapped; every vector has its mapped dim in front."""
    first, known, functions = params["first"], params["known"], params["functions"]
    extra, extra_dims, const_dims = tuple(values[:first]), tuple(dims[:first]), tuple(dims[first:known])
    vectors = [full_in_front(size, v, d) for v, d in zip(values[known:], dims[known:], strict=True)]

    def mapped(function: Flat) -> Flat:
        both = vmap(function, (const_dims, 0), axis_size=size)
        return lambda consts, xs: list(both(tuple(consts), list(xs)))

    def solve(consts: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        run = vmap(
            lambda es, cs, vs: eval_program(params["program"], [*es, *cs, *vs]),
            (extra_dims, const_dims, 0),
            axis_size=size,
        )
        return list(run(extra, tuple(consts), list(xs)))

    transpose_solve = None if functions.transpose_solve is None else mapped(functions.transpose_solve)
    outs = _solved(
        values[first:known],
        vectors,
        Functions(mapped(functions.matvec), mapped(functions.vecmat), solve, transpose_solve),
    )
    return outs, [0] * len(outs)


linear_solve_op = define_op("custom_linear_solve", type_rule=called_type, multiple_results=True, typed=True,
                            inline=lambda eqn: eqn.params["program"], jvp=_solve_jvp, transpose=_solve_transpose,
                            batch=_solve_batch)  # fmt: skip


# -- roots ---------------------------------------------------------------------------------------------------------------------


def custom_root(f: Callable[[Any], Any], initial_guess: Any, solve: Callable[..., Any], tangent_solve: Callable[..., Any],
                has_aux: bool = False) -> Any:  # fmt: skip
    """x with ``f(x) == 0``, found by ``solve(f, initial_guess)``, with derivatives by the implicit function theorem.

    Args:
        f: may close over values being differentiated; maps x to something of its structure.
        initial_guess: where the solver starts; no derivative flows to it.
        solve: may be any iteration; it is never differentiated.
        tangent_solve: ``tangent_solve(g, y)`` solves ``g(x) == y`` for a linear g; for reverse mode it must be transposable.
        has_aux: `solve` returns ``(x, aux)``.
    """
    from shardwise.ops.casts import stop_gradient

    converted, captured = closure_convert(f, initial_guess)
    start = stop_gradient(initial_guess)

    @custom_jvp
    def root(*consts: Any) -> Any:
        found = solve(lambda x: converted(x, *consts), start)
        return found if has_aux else (found, ())

    @root.defjvp
    def root_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        x, aux = root(*primals)
        _, moved = jvp(lambda *cs: converted(x, *cs), primals, tangents)
        _, along_x = linearize(lambda v: converted(v, *primals), x)
        dx = tangent_solve(along_x, tree_map(do.neg, moved))
        return (x, aux), (dx, tree_map(lambda v: zeros(v.aval) if hasattr(v, "aval") else v, aux))

    guess_tree = tree_flatten(initial_guess)[1]
    x, aux = root(*captured)
    if tree_flatten(x)[1] != guess_tree:
        raise TypeError(f"custom_root: {function_name(solve)} must give the structure of the initial guess, {guess_tree}, got "
                        f"{tree_flatten(x)[1]}.")  # fmt: skip
    return (x, aux) if has_aux else x
