"""Views in a scheduled program: values that show the memory of another one.

In: equations of a program as our own engine runs it. Out: per view its root, the value that owns the memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from shardwise.ir import Atom, Equation, Program, Var


def is_view(eqn: Equation) -> bool:
    """Whether an equation's results are views of its first operand; so are the pieces into which an op cuts its only one."""
    cuts = eqn.op.boxes is not None and len(eqn.outputs) > 1 and len(eqn.inputs) == 1
    return (eqn.op.view or cuts) and bool(eqn.inputs)


def roots_of(program: Program) -> dict[Var, Atom]:
    """Per view the value whose memory it shows; a literal for views of constants."""
    roots: dict[Var, Atom] = {}
    for eqn in program.equations:
        if is_view(eqn):
            roots.update(dict.fromkeys(eqn.outputs, root_of(eqn.inputs[0], roots)))
    return roots


def root_of(atom: Atom, roots: Mapping[Var, Atom]) -> Atom:
    """The value that owns an atom's memory: itself if it is no view."""
    return roots.get(atom, atom) if isinstance(atom, Var) else atom
