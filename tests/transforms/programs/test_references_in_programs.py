"""Programs that `make_jaxpr` shows have operations on Refs, letter by letter as JAX's, and `eval_jaxpr` runs them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.base.config import use_dialect

X, V = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(3, np.float32)
I = np.array([0, 2], np.int32)  # noqa: E741


@pytest.fixture(autouse=True)
def latest():
    with use_dialect("latest"):
        yield


def w(ref: Any, index: Any, value: Any) -> None:
    ref[index] = value


# A function of the library, a Ref of X, one of V, and an array or a number: its body.
LINES = {
    "rows": lambda j, x, v, n: (w(x, 0, x[1] * 2), x[...])[1],
    "from the end": lambda j, x, v, n: x[-1],
    "slices": lambda j, x, v, n: (x[0:2], x[:, 1:3], x[..., 0], x[()]),
    "windows": lambda j, x, v, n: (x[j.ds(n, 2)], x[j.ds(1, 2)]),
    "computed": lambda j, x, v, n: (x[n], x[n, n], x[1, n]),
    "swap": lambda j, x, v, n: j.ref.swap(v, 0, 1.0),
    "add": lambda j, x, v, n: j.ref.addupdate(v, 0, 2.0),
    "whole": lambda j, x, v, n: w(x, Ellipsis, x[...] + 1),
    "views": lambda j, x, v, n: (w(x.at[0], 1, 2.0), x.at[1:3].at[0][...]),
    "frozen": lambda j, x, v, n: j.freeze(x),
    "made": lambda j, x, v, n: (lambda r: (w(r, 0, n.astype(float)), j.freeze(r)))(j.new_ref(j.numpy.zeros(3))),
    "made empty": lambda j, x, v, n: j.freeze(j.empty_ref(j.ShapeDtypeStruct((2,), np.float32))),
    "scan": lambda j, x, v, n: j.lax.scan(lambda c, i: (w(v, i, c), (c + 1, c))[1], 0.0, j.numpy.arange(3)),
    "fori": lambda j, x, v, n: j.lax.fori_loop(0, 3, lambda i, c: (w(v, i, c), c + 1)[1], 0.0),
    "while": lambda j, x, v, n: j.lax.while_loop(lambda c: c < 3, lambda c: (w(v, c, v[c] + 1), c + 1)[1], 0),
    "cond": lambda j, x, v, n: j.lax.cond(n > 0, lambda: w(v, 0, 1.0), lambda: None),
    "argument of a branch": lambda j, x, v, n: j.lax.cond(n > 0, lambda r: w(r, 0, 1.0), lambda r: None, v),
    "argument of a call": lambda j, x, v, n: j.jit(lambda r, y: w(r, 0, y))(v, x[0, 0]),
    "beside a derivative": lambda j, x, v, n: j.grad(lambda y: (w(v, 0, j.lax.stop_gradient(y)), y * y)[1])(n * 1.5),
}
LIBRARIES = {"shardwise": sw, "jax": importlib.import_module("jax")}


def text(library: Any, name: str) -> str:
    """The program of a line, with the Refs as arguments."""
    refs = [library.new_ref(library.numpy.asarray(a)) for a in (X, V)]
    return str(library.make_jaxpr(lambda x, v, n: LINES[name](library, x, v, n))(*refs, 1))


@pytest.mark.parametrize("name", LINES)
def test_programs_are_those_of_jax(name):
    assert text(sw, name) == text(LIBRARIES["jax"], name)


def test_refs_that_are_closed_over_are_captured_values():
    for library in LIBRARIES.values():
        ref = library.new_ref(library.numpy.asarray(X))
        closed = library.make_jaxpr(lambda y, ref=ref: (w(ref, 0, y), ref[1])[1])(X[0])
        assert str(closed).startswith("{ lambda a:Ref{f32[3,4]}; b:f32[4]. let")
        assert closed.consts[0] is ref or library is not sw
        np.testing.assert_array_equal(ref[...], X)


@pytest.mark.parametrize("name", ["rows", "swap", "add", "views", "windows", "made"])
def test_shown_programs_run_on_refs(name):
    refs = [sw.new_ref(jnp.asarray(a)) for a in (X, V)]
    again = [sw.new_ref(jnp.asarray(a)) for a in (X, V)]
    closed = sw.make_jaxpr(lambda x, v, n: LINES[name](sw, x, v, n))(*refs, 1)
    found = sw.core.eval_jaxpr(closed.jaxpr, closed.consts, *refs, 1)
    wanted = sw.tree.leaves(sw.jit(lambda x, v, n: LINES[name](sw, x, v, n))(again[0], again[1], 1))
    for a, b in zip([*found, *[r[...] for r in refs]], [*wanted, *[r[...] for r in again]], strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_wrong_raises():
    ref = sw.new_ref(jnp.asarray(X))
    with pytest.raises(ValueError, match="only one reference"):
        sw.make_jaxpr(lambda a, b: a[...])(ref, ref)
    with pytest.raises(ValueError, match="Invalid shape for `swap`"):
        sw.make_jaxpr(lambda r: w(r, 0, 1.0))(ref)
    with pytest.raises(ValueError, match="Invalid dtype for `swap`"):
        sw.make_jaxpr(lambda r: w(r, (0, 0), 1))(ref)
    with pytest.raises(ValueError, match="frozen or freed"):
        sw.make_jaxpr(lambda r: (sw.freeze(r), r[...]))(ref)
    called = sw.make_jaxpr(lambda r: sw.jit(lambda r: w(r, (0, 0), 1.0))(r))(ref)
    with pytest.raises(NotImplementedError, match="Call the function"):
        sw.core.eval_jaxpr(called.jaxpr, called.consts, ref)


def test_maps_and_derivatives_of_functions_that_make_refs_compute_with_arrays():
    def f(x):
        ref = sw.new_ref(x)
        ref[0] = 2 * x[1]
        return ref[...].sum()

    for function in (sw.grad(f), sw.vmap(f)):
        x = jnp.asarray(X)
        closed = sw.make_jaxpr(function)(x)
        (found,) = sw.core.eval_jaxpr(closed.jaxpr, closed.consts, x)
        np.testing.assert_array_equal(found, function(x))
