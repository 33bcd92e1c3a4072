"""Layouts as short texts, and propagation of traced functions."""

import re
from typing import Any

import numpy as np

import shardwise  # noqa: F401  (installs the array type that ops convert host values to)
from shardwise.base.shapes import DimAxes
from shardwise.ir import Program, ShapedArray, Var, live_equations, trace_program
from shardwise.passes.propagate import Placement, propagate

MESH = {"x": 2, "y": 4}


def layout(text):
    """``x-`` is P('x', None), ``(xy)-`` is P(('x', 'y'), None), ``()`` a scalar's layout."""
    if text == "()":
        return ()
    return tuple(() if part == "-" else tuple(part.strip("()")) for part in re.findall(r"\([a-z]+\)|[a-z-]", text))


def text(dims):
    """The inverse of `layout`."""
    return "".join("-" if not a else a[0] if len(a) == 1 else f"({''.join(a)})" for a in dims) or "()"


def argument(spec):
    """``8,8 xy``: an f32 type and its layout (``i8 x`` is i32); ``8,8 ?`` leaves the layout to propagation."""
    shape, _, where = spec.partition(" ")
    dtype = np.dtype(np.float32)
    if shape.startswith("i"):
        shape, dtype = shape[1:], np.dtype(np.int32)
    return ShapedArray(tuple(map(int, shape.split(","))) if shape else (), dtype), where


def run_propagation(f, args, outs=None, mesh=None) -> tuple[Program, dict[Any, DimAxes]]:
    """Trace `f` for arguments like ``8,8 xy`` and propagate: the program and the layout of each variable."""
    avals, wheres = zip(*map(argument, args), strict=True)

    def flat(*xs):
        result = f(*xs)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    program, consts = trace_program(flat, avals)
    program = live_equations(program)
    placements: list[Placement | None] = [None] * len(consts)
    for aval, where in zip(avals, wheres, strict=True):
        placements.append(None if where == "?" else Placement(layout(where), (False,) * aval.ndim))
    wanted = [
        None if w is None else Placement(layout(w), (False,) * len(layout(w)))
        for w in outs or [None] * len(program.outputs)
    ]
    return program, propagate(program, mesh or MESH, placements, wanted)


def out_layouts(f, args, outs=None, mesh=None):
    """Layouts of a function's results, as texts."""
    program, dims = run_propagation(f, args, outs, mesh)
    return [text(dims[v]) if isinstance(v, Var) else text(((),) * v.aval.ndim) for v in program.outputs]
