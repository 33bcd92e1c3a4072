"""`jax.core`: checks of programs, and ops that run at once."""

from __future__ import annotations

from typing import Any

import pytest

import shardwise as sw
from shardwise import core
from shardwise import numpy as jnp


def test_programs_are_checked() -> None:
    jaxpr = sw.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0).jaxpr
    core.check_jaxpr(jaxpr)
    with pytest.raises(core.JaxprTypeError):
        core.check_jaxpr(core.Jaxpr((), jaxpr.invars, jaxpr.outvars, jaxpr.eqns[1:]))


def test_ops_run_at_once() -> None:
    found = []

    @sw.jit
    def f(x: Any) -> sw.Array:
        with core.eval_context():
            found.append(float(jnp.ones(3).sum()))
        return x + 1

    assert f(1.0) == 2 and found == [3]
