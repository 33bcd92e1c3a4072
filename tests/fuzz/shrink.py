"""Programs that show something made small: statements go, or become what is simplest, as long as it still shows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.program import Function, Program, Shape, Statement

Shows = Callable[[Program], bool]


def shrunk(program: Program, shows: Shows, attempts: int = 400) -> Program:
    """The smallest program found in so many attempts that still `shows` what `program` does."""
    left = attempts
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in _simpler(program):
            if left <= 0:
                break
            if candidate.text() == program.text():
                continue
            left -= 1
            if shows(candidate):
                program, progress = candidate, True
                break
    return program


def _simpler(program: Program) -> Iterator[Program]:
    """Programs that say less, the boldest first."""
    n = len(program.results)
    if n > 1:
        for half in (range(n // 2), range(n // 2, n)):
            yield program.only(list(half))
        for i in range(n):
            yield program.only([i])
            yield program.only([k for k in range(n) if k != i])
    if program.jit:
        yield replace(program, jit="")
        for part in program.jit.split(", donate_argnums"):
            yield replace(program, jit=part)
    paths = list(_paths(program.statements, ()))
    for path in reversed(paths):  # the last first: all that only leads there goes with it
        yield from _replacements(program, path)
    for i, operand in enumerate(program.operands):
        simpler = "P()"
        if operand.spec != simpler:
            operands = [*program.operands]
            operands[i] = replace(operand, spec=simpler)
            yield replace(program, operands=operands)
        if operand.made.startswith("special"):
            operands = [*program.operands]
            operands[i] = replace(operand, made=operand.made.replace("special", "data"))
            yield replace(program, operands=operands)
    for mesh in ((1,), (2,)):
        if mesh != program.mesh and len(program.mesh) == 1:
            yield replace(program, mesh=mesh)


Path = tuple[tuple[int, int], ...]  # (statement, function) pairs, the last function -1


def _paths(statements: list[Statement], prefix: Path) -> Iterator[Path]:
    for i, statement in enumerate(statements):
        yield (*prefix, (i, -1))
        for k, function in enumerate(statement.functions):
            yield from _paths(function.statements, (*prefix, (i, k)))


def _at(program: Program, path: Path) -> tuple[list[Statement], int]:
    statements = program.statements
    for i, k in path[:-1]:
        statements = statements[i].functions[k].statements
    return statements, path[-1][0]


def _replacements(program: Program, path: Path) -> Iterator[Program]:
    """The program with one statement made a constant, another value of the type, or the value of its first operand."""
    statements, i = _at(program, path)
    statement = statements[i]
    constant = _constant(statement.shape, statement.dtype)
    if statement.expression == constant:
        return
    known: list[tuple[str, Shape, str]] = [(o.name, o.shape, o.dtype) for o in program.operands]
    inner = program.statements
    for step, k in path:
        known += [(s.name, s.shape, s.dtype) for s in inner[:step]]
        if k >= 0:
            inner = inner[step].functions[k].statements
    options = [
        constant,
        *[name for name, shape, dtype in known[::-1] if (shape, dtype) == (statement.shape, statement.dtype)][:2],
    ]
    if len(path) > 1:
        function = _function(program, path)
        options += function.parameters[:2]
    for expression in options:
        if expression == statement.name or expression == statement.expression:
            continue
        candidate = copy.deepcopy(program)
        inside, _ = _at(candidate, path)
        inside[i] = Statement(statement.name, expression, statement.shape, statement.dtype)
        yield candidate.without_dead()


def _function(program: Program, path: Path) -> Function:
    statements = program.statements
    function = None
    for i, k in path[:-1]:
        function = statements[i].functions[k]
        statements = function.statements
    assert function is not None
    return function


def _constant(shape: Shape, dtype: str) -> str:
    return f"jnp.asarray(data({shape}, {dtype!r}))"
