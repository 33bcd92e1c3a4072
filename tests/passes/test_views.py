"""Views: what ops that only move elements make of each other, before anything moves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwise import lax
from shardwise.ir import Box, ShapedArray, Var, trace_program
from shardwise.passes.views import PlacedValue, View, compose, moves_split_dims, view_of_source


def source(shape, dims=None):
    return PlacedValue(Var(ShapedArray(shape, np.dtype("float32"))), dims or ((),) * len(shape), shape)


def shown(view, values):
    """The array of a view, where `values` gives those of its sources."""
    out = np.full(view.shape, -1.0)
    for part in view.parts:
        at = tuple(slice(a, a + n) for a, n in zip(part.at, part.size, strict=True))
        of = tuple(slice(a, a + n) for a, n in zip(part.first, part.size, strict=True))
        out[at] = values[part.source] if part.fills else values[part.source][of]
    return out


def viewed(f, x):
    """The view that `f`, made of moves alone, makes of a source, with the values of that."""
    program, _ = trace_program(lambda a: [f(a)], (ShapedArray(x.shape, np.dtype("float32")),))
    whole = source(x.shape)
    views, values = {program.inputs[0]: view_of_source(whole)}, {whole: x}
    for eqn in program.equations:
        operands = []
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                operands.append(views[atom])
            else:
                scalar = PlacedValue(atom, (), ())
                values[scalar] = atom.value
                operands.append(view_of_source(scalar))
        assert eqn.op.boxes is not None
        of_results = eqn.op.boxes(eqn)
        assert of_results is not None
        for var, boxes in zip(eqn.outputs, of_results, strict=True):
            views[var] = compose(boxes, operands, var.aval.shape, eqn)
    (out,) = program.outputs
    assert isinstance(out, Var)
    return views[out], values


X = np.arange(48.0).reshape(6, 8)
MOVES = {
    "slice": lambda x: lax.slice(x, (1, 2), (x.shape[0], x.shape[1])),
    "pad": lambda x: lax.pad(x, np.float32(-2), [(1, -1, 0), (0, 2, 0)]),
    "roll": lambda x: lax.concatenate([x[1:], x[:1]], 0),
    "update": lambda x: lax.dynamic_update_slice(x, x[:2, :2], (1, 1)),
    "split": lambda x: lax.concatenate(lax.split(x, (2, x.shape[1] - 2), 1)[::-1], 1),
}


@given(st.lists(st.sampled_from(sorted(MOVES)), max_size=4))
def test_moves_of_moves_are_one_view(names):
    def f(x):
        for name in names:
            if min(x.shape) > 3:
                x = MOVES[name](x)
        return x

    view, values = viewed(f, X)
    np.testing.assert_array_equal(shown(view, values), np.asarray(f(X.astype(np.float32))))


def test_what_later_parts_cover_is_cut_away():
    view, _ = viewed(lambda x: lax.dynamic_update_slice(x, x[:5], (1, 0)), X)
    assert [(p.first, p.at, p.size) for p in view.parts] == [((0, 0), (0, 0), (1, 8)), ((0, 0), (1, 0), (5, 8))]
    assert view.moved_dims() == [0]


def test_a_view_knows_the_axes_of_its_parts():
    x, y = view_of_source(source((8, 4))), view_of_source(source((8, 4), (("a",), ())))
    boxes = (Box(0, (0, 0), (0, 0), (8, 4)), Box(1, (0, 0), (8, 0), (8, 4)))
    assert compose(boxes, (x, y), (16, 4), None).axes(0) == ("a",)
    assert moves_split_dims(boxes, (x, y), (16, 4))
    assert not moves_split_dims(boxes, (x, x), (16, 4))
    assert not moves_split_dims((Box(1, (0, 1), (0, 0), (8, 3)),), (x, y), (8, 3))  # along the other dim


def test_equal_literals_are_one_source():
    program, _ = trace_program(
        lambda a: [lax.pad(lax.pad(a, 0.0, [(1, 1, 0)]), 0.0, [(1, 1, 0)])], (ShapedArray((4,), np.dtype("float32")),)
    )
    one, other = (PlacedValue(eqn.inputs[1], (), ()) for eqn in program.equations)
    assert one.is_same(other)
    assert not one.is_same(source(()))
    assert View((4,), (), None).axes(0) == ()
