"""`checkify`: a function that returns the first error of its checks beside its results, instead of raising it.

The function is traced, and its program run equation by equation with an error beside the values. A program inside of an
equation (a loop's body, a branch, a called function) is replaced by one that begins without an error and returns its own as further
results; the surrounding program merges that into the error so far.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.ir import (
    ANY_GOES_ON,
    Equation,
    Literal,
    Program,
    ShapedArray,
    Var,
    bind,
    eval_program,
    map_programs,
    subprograms,
    trace_program,
)
from shardwise.ir.op import Params
from shardwise.ops.control.bodies import enter_carry, intern_program, separate
from shardwise.ops.control.cond import cond_p
from shardwise.ops.control.scan import scan_p
from shardwise.ops.control.while_loop import while_p
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import do, full_cotangent
from shardwise.transforms.bodies.derived_bodies import trace_body
from shardwise.transforms.bodies.jit_rules import DerivedProgram, cache_made
from shardwise.transforms.checks.checkify_checks import EnabledErrors, checks_of
from shardwise.transforms.checks.checkify_errors import (
    DivisionByZeroError,
    Error,
    FailedCheckError,
    NaNError,
    OOBError,
    Site,
    check_p,
    enabled_part,
    error_of,
    flat_error,
    init_error,
    join_errors,
    sizes_of,
    strong,
    whole,
)
from shardwise.transforms.jit.jit_op import jit_op
from shardwise.transforms.manual.shard_map_marks import Marks
from shardwise.transforms.manual.shard_map_op import shard_map_op
from shardwise.transforms.manual.shard_map_scope import body_scope

user_checks: EnabledErrors = frozenset({FailedCheckError})
nan_checks: EnabledErrors = frozenset({NaNError})
index_checks: EnabledErrors = frozenset({OOBError})
div_checks: EnabledErrors = frozenset({DivisionByZeroError})
empty_checks: EnabledErrors = frozenset()
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks

CheckedResult = tuple[Error, list[Any]]


def checkify(f: Callable[..., Any], errors: EnabledErrors = user_checks) -> Callable[..., tuple[Error, Any]]:
    """`f` with checks: a function that returns ``(error, out)``.

    Args:
        f: a function that calls `check`, or any.
        errors: the set of checks: `user_checks` are the calls of `check`; `nan_checks`, `div_checks` (divisors that are zero) and
            `index_checks` (indices out of bounds) are added to the operations of `f`. Sets of them are joined with ``|``.

    Returns:
        A function of the same arguments. Its error tells of the check that failed first (``error.get()`` is its message or
        None, ``error.throw()`` raises JaxRuntimeError); `out` is what `f` returns, whether a check failed or not.

    >>> errors = jax.experimental.checkify.nan_checks
    >>> error, out = jax.experimental.checkify.checkify(jnp.log, errors)(-1.0)
    >>> bool(error.get())
    True
    """
    enabled_errors = frozenset(errors)

    @wraps(f)
    @user_facing
    def checked_call(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        out_tree: Any = None

        def flat() -> list[Any]:
            nonlocal out_tree
            outs, out_tree = tree_flatten(f(*args, **kwargs))
            return [as_value(o) for o in outs]

        program, consts = trace_program(flat, [], getattr(f, "__name__", "checkify"))
        error, outs = _run(program, enabled_errors, consts)
        return error, tree_unflatten(out_tree, list(map(as_array, outs)))

    return checked_call


def _run(program: Program, enabled: EnabledErrors, values: Sequence[Any]) -> CheckedResult:
    """The first error of a program's checks, and its results."""
    value_of: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
    read = lambda a: a if isinstance(a, Literal) else value_of[a]  # noqa: E731
    error = init_error
    for eqn in program.equations:
        new_error, outs = _equation(eqn, [read(a) for a in eqn.inputs], enabled)
        error = join_errors(error, new_error)
        value_of.update(zip(eqn.outputs, outs, strict=True))
    return error, [read(a) for a in program.outputs]


def _equation(eqn: Equation, values: Sequence[Any], enabled: EnabledErrors) -> CheckedResult:
    op, params = eqn.op, eqn.params
    if op is check_p:
        return enabled_part(error_of(values, params["sites"], params["sizes"]), enabled), []
    rule = _RULES.get(op)
    if rule is not None:
        return rule(params, values, enabled)
    if op.inline is not None and any(True for _ in subprograms(params)):
        return _check_call(eqn, values, enabled)
    result = bind(op, *values, **params)
    outs = list(result) if op.multiple_results else [result]
    error = init_error
    if enabled - user_checks:
        for new_error in checks_of(op, params, values, outs, enabled):
            error = join_errors(error, new_error)
    return error, outs


# -- programs that hold programs -----------------------------------------------------------------------------------------


@cache_made
def _check_program(program: Program, enabled: EnabledErrors, one: bool = True) -> DerivedProgram:
    """A program with the arrays of its error in front of its results; `results` are the sites and the sizes of payloads.

    Unless it is to be `one` error, that of a `shard_map` in it keeps the dim of its devices.
    """
    note: list[Any] = []

    def both(*values: Any) -> list[Any]:
        error, outs = _run(program, enabled, values)
        if one:
            error = whole(error)
        note[:] = [error.sites, sizes_of(error)]
        return [*flat_error(error), *outs]

    checked_program = trace_body(both, program.in_types, program.name)
    return DerivedProgram(intern_program(checked_program.program), checked_program.consts, tuple(note))


def _shape(made: DerivedProgram) -> tuple[tuple[Site, ...], tuple[int, ...], int]:
    """The sites of a checked program, the sizes of their payloads, and the number of the error's arrays."""
    sites, sizes = made.results
    return sites, sizes, 1 + sum(sizes) if sites else 0


def _apart(made: DerivedProgram, outs: Sequence[Any]) -> CheckedResult:
    sites, sizes, count = _shape(made)
    return error_of(outs, sites, sizes), list(outs[count:])


def _strong(checked: CheckedResult) -> CheckedResult:
    error, outs = checked
    return strong(error), outs


def _start(types: Sequence[ShapedArray]) -> list[Any]:
    """The initial error of loops: none."""
    return [enter_carry(full_cotangent(t.update(vma=frozenset())), t) for t in types]


def without_checks(program: Program) -> Program:
    """`program` without any `check`."""
    equations = tuple(map_programs(e, without_checks) for e in program.equations if e.op is not check_p)
    if len(equations) == len(program.equations) and all(map(operator.is_, equations, program.equations)):
        return program
    return Program(program.inputs, equations, program.outputs, program.num_consts, program.name)


def _check_call(eqn: Equation, values: Sequence[Any], enabled: EnabledErrors) -> CheckedResult:
    """A function with rules of its own (derivatives, batching) keeps them; its errors are computed by a second call."""
    params = map_programs(eqn, without_checks).params
    outs = bind(eqn.op, *values, **params)
    if eqn.op.inline is None:
        return init_error, outs
    checked_program = _check_program(eqn.op.inline(eqn), enabled)
    if not checked_program.results[0]:
        return init_error, outs
    constants = [v if isinstance(v, Literal) else do.stop_gradient(v) for v in values]
    error, _ = _apart(checked_program, eval_program(checked_program.program, [*checked_program.consts, *constants]))
    return error, outs


def _jit(params: Params, values: Sequence[Any], enabled: EnabledErrors) -> CheckedResult:
    checked_program = _check_program(params["program"], enabled, False)
    _, _, count = _shape(checked_program)
    outs = bind(
        jit_op,
        *checked_program.consts,
        *values,
        **{
            **params,
            "program": checked_program.program,
            "in_shardings": (*[None] * len(checked_program.consts), *params["in_shardings"]),
            "out_shardings": (*[None] * count, *params["out_shardings"]),
        },
    )
    return _apart(checked_program, outs)


def _cond(params: Params, values: Sequence[Any], enabled: EnabledErrors) -> CheckedResult:
    """All branches return the sites of all."""
    index, *args = values
    checked_branches = [_check_program(b, enabled) for b in params["branches"]]
    types: dict[Site, Sequence[ShapedArray]] = {}
    for m in checked_branches:
        error, _ = _apart(m, m.program.out_types)
        types.update(zip(error.sites, error.payloads, strict=True))
    sites = tuple(types)
    consts = [c for m in checked_branches for c in m.consts]
    branches, first = [], 0
    for m in checked_branches:
        here = slice(first, first + len(m.consts))
        first = here.stop

        def run(*xs: Any, m: DerivedProgram = m, here: slice = here) -> list[Any]:
            error, outs = _apart(m, eval_program(m.program, [*xs[here], *xs[len(consts) :]]))
            if not sites:
                return outs
            have = dict(zip(error.sites, error.payloads, strict=True))
            payloads = tuple(have.get(s) or tuple(map(full_cotangent, types[s])) for s in sites)
            code = error.code if error.sites else as_array(0).astype("int32")
            return [*flat_error(Error(code, payloads, sites)), *outs]

        branches.append(trace_body(run, [*[c.aval for c in consts], *[a.aval for a in args]], m.program.name))
    extra = [c for b in branches for c in b.consts]
    outs = bind(cond_p, index, *extra, *consts, *args, branches=_same_consts(branches))
    whole_shape = DerivedProgram(branches[0].program, (), (sites, tuple(len(types[s]) for s in sites)))
    return _strong(_apart(whole_shape, outs))


def _same_consts(branches: Sequence[DerivedProgram]) -> tuple[Program, ...]:
    """The branches' programs with the values that any of them captured in front."""
    programs = []
    for i, b in enumerate(branches):
        front: list[Var] = []
        for j, other in enumerate(branches):
            own = b.program.inputs[: len(b.consts)]
            front += own if i == j else [Var(c.aval) for c in other.consts]
        p = b.program
        inputs = (*front, *p.inputs[len(b.consts) :])
        programs.append(separate(intern_program(Program(inputs, p.equations, p.outputs, len(front), p.name))))
    return tuple(programs)


def _scan(params: Params, values: Sequence[Any], enabled: EnabledErrors) -> CheckedResult:
    checked_body = _check_program(params["body"], enabled)
    sites, sizes, count = _shape(checked_body)
    n = params["num_consts"]
    k, types = len(checked_body.consts), checked_body.program.out_types[:count]

    def step(*xs: Any) -> list[Any]:
        before, rest = xs[k + n : k + n + count], xs[k + n + count :]
        error, outs = _apart(checked_body, eval_program(checked_body.program, [*xs[: k + n], *rest]))
        return [*flat_error(join_errors(error_of(before, sites, sizes), error)), *outs]

    own = checked_body.program.in_types
    body = trace_body(step, [*own[: k + n], *types, *own[k + n :]], checked_body.program.name)
    consts = [*body.consts, *checked_body.consts, *values[:n]]
    outs = bind(
        scan_p,
        *consts,
        *_start(types),
        *values[n:],
        **{
            **params,
            "body": separate(intern_program(body.program)),
            "num_consts": len(consts),
            "num_carry": params["num_carry"] + count,
        },
    )
    return _strong(_apart(checked_body, outs))


def _while(params: Params, values: Sequence[Any], enabled: EnabledErrors) -> CheckedResult:
    """The condition is checked before the loop, and after each step."""
    a, b = params["cond_consts"], params["body_consts"]
    cond_args, body_args, init = values[:a], values[a : a + b], values[a + b :]
    test, body = _check_program(params["cond"], enabled), _check_program(params["body"], enabled)
    first, _ = _apart(test, eval_program(test.program, [*test.consts, *cond_args, *init]))
    consts = [*test.consts, *cond_args, *body.consts, *body_args]
    split = len(test.consts) + a

    def again(*xs: Any) -> CheckedResult:
        """One step without the errors of earlier ones."""
        given, carry = xs[: len(consts)], xs[len(consts) :]
        error, outs = _apart(body, eval_program(body.program, [*given[split:], *carry]))
        after, _ = _apart(test, eval_program(test.program, [*given[:split], *outs]))
        return join_errors(error, after), outs

    note: list[Any] = []

    def measure_error(*xs: Any) -> list[Any]:
        error, outs = again(*xs)
        note[:] = [error.sites, sizes_of(error)]
        return [*flat_error(error), *outs]

    carry_types = body.program.in_types[len(body.consts) + b :]
    trial = trace_body(measure_error, [*[c.aval for c in consts], *carry_types], body.program.name)
    sites, sizes = note
    if sites and params["cond"].name == ANY_GOES_ON:
        raise ValueError(
            "checkify does not support checks in batched while-loops, where elements stop at different times "
            "(checkify of vmap of while_loop). Map the checked function instead: vmap of checkify of while_loop."
        )
    count = 1 + sum(sizes) if sites else 0
    types = trial.program.out_types[:count]
    size = len(consts)

    def step(*xs: Any) -> list[Any]:
        error, outs = again(*xs[:size], *xs[size + count :])
        return [*flat_error(join_errors(error_of(xs[size : size + count], sites, sizes), error)), *outs]

    def test_carry(*xs: Any) -> list[Any]:
        return eval_program(without_checks(params["cond"]), [*xs[:a], *xs[a + count :]])

    checked_body = trace_body(step, [*[c.aval for c in consts], *types, *carry_types], params["body"].name)
    checked_test = trace_body(test_carry, [*[c.aval for c in cond_args], *types, *carry_types], params["cond"].name)
    outs = bind(
        while_p,
        *checked_test.consts,
        *cond_args,
        *checked_body.consts,
        *consts,
        *_start(types),
        *init,
        cond=separate(intern_program(checked_test.program)),
        body=separate(intern_program(checked_body.program)),
        cond_consts=len(checked_test.consts) + a,
        body_consts=len(checked_body.consts) + size,
    )
    return join_errors(first, strong(error_of(outs, sites, sizes))), list(outs[count:])


def _shard_map(params: Params, values: Sequence[Any], enabled: EnabledErrors) -> CheckedResult:
    """Each device has its own error: it has a dim for the devices."""
    program, mesh, manual = params["program"], params["mesh"], params["manual"]
    note: list[Any] = []

    def both(*blocks: Any) -> list[Any]:
        error, outs = _run(program, enabled, blocks)
        error = whole(error)
        note[:] = [error.sites, sizes_of(error)]
        front = lambda x: do.broadcast_in_dim(  # noqa: E731
            x, shape=(1, *x.shape), broadcast_dimensions=tuple(range(1, x.ndim + 1)), out_sharding=None
        )
        return [*map(front, flat_error(error)), *outs]

    with body_scope(mesh, manual, params["check"], params["era"]):
        body, consts = trace_program(both, program.in_types, program.name)
    checked_body = DerivedProgram(body, tuple(consts), tuple(note))
    _, _, count = _shape(checked_body)
    axes = tuple(a for a in mesh.axis_names if a in manual)
    error_dims = [(axes, *[()] * (t.ndim - 1)) for t in body.out_types[:count]]
    outs = bind(
        shard_map_op,
        *consts,
        *values,
        **{
            **params,
            "program": body,
            "in_dims": (*[((),) * c.aval.ndim for c in consts], *params["in_dims"]),
            "out_dims": (*error_dims, *params["out_dims"]),
            "out_marks": (*[Marks()] * count, *params["out_marks"]),
        },
    )
    return _apart(checked_body, outs)


_RULES: dict[Any, Callable[[Params, Sequence[Any], EnabledErrors], CheckedResult]] = {
    jit_op: _jit,
    cond_p: _cond,
    scan_p: _scan,
    while_p: _while,
    shard_map_op: _shard_map,
}
