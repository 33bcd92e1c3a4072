"""Functions of operands that lie differently on Explicit axes: the result has the layout of both, and the values of one device."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.scipy import special, stats
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh, use_mesh
from tests.rounding import assert_normwise

X = np.arange(1, 9, dtype=np.float32).reshape(2, 4) / 3
ROW = np.arange(4, dtype=np.float32) + 0.5
PLACED = {"split": (X, P("x", "y")), "whole": (X + 0.3, P()), "row": (ROW, P("y")), "number": (2.0, None)}
MIXES = [
    ("split", "whole"),
    ("whole", "split"),
    ("split", "number"),
    ("number", "split"),
    ("split", "row"),
    ("row", "split"),
]
FUNCTIONS = {
    "rel_entr": special.rel_entr,
    "kl_div": special.kl_div,
    "comb": special.comb,
    "boxcox": special.boxcox,
    "boxcox1p": special.boxcox1p,
    "logsumexp": lambda a, b: special.logsumexp(a, 0, b=b, where=b > 1),
    "heaviside": lambda a, b: jnp.heaviside(a - 1, b),
    "geomspace": lambda a, b: jnp.geomspace(a, b, 3),
    "select": lambda a, b: jnp.select([a > 1, b > 1], [a, b], 0.0),
    "truncnorm": lambda a, b: stats.truncnorm.pdf(a, -b, b),
    "beta": lambda a, b: stats.beta.pdf(a / 4, b, 2.0),
}
LEFT_OUT = {
    ("select", "split", "number"),
    ("select", "number", "split"),
    ("logsumexp", "number", "split"),
    ("logsumexp", "row", "split"),
}

SPECS = {"logsumexp": ("y",), "geomspace": (None, "x", "y")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_result_lies_as_both_operands(name):
    mesh = make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    for mix in MIXES:
        if (name, *mix) in LEFT_OUT:
            continue
        (a, _), (b, _) = (PLACED[k] for k in mix)
        want = FUNCTIONS[name](a, b)
        with use_dialect("latest"), use_mesh(mesh):
            placed = [x if s is None else sw.device_put(x, NamedSharding(mesh, s)) for x, s in (PLACED[k] for k in mix)]
            got = FUNCTIONS[name](*placed)
        assert isinstance(got.sharding, NamedSharding)
        assert tuple(got.sharding.spec) == SPECS.get(name, ("x", "y"))
        assert_normwise(got, want, 3e-6)
