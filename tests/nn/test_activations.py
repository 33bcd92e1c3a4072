"""Activations: values, dtypes, weak types and derivatives as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.nn as nn
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, P
from tests.numpy.face import cases, check_case, check_error

PLAIN = (
    "relu relu6 sigmoid silu swish softplus soft_sign elu celu selu gelu leaky_relu hard_tanh hard_sigmoid hard_silu "
    "hard_swish log_sigmoid mish squareplus sparse_plus sparse_sigmoid identity tanh"
).split()

CASES = (
    "\n".join(
        [f"nn.{f}({x})" for f in PLAIN for x in ("m", "grid * 3", "f", "h")]
        + [f"nn.{f}(i)" for f in PLAIN if f not in ("sigmoid", "silu", "swish")]
        + [f"jax.grad(lambda x: nn.{f}(x).sum())(grid * 3)" for f in PLAIN]
        + [
            f"nn.{f}(gap)"
            for f in ("relu", "sigmoid", "silu", "softplus", "relu6", "hard_tanh", "elu", "gelu", "log_sigmoid")
        ]
    )
    + """
nn.relu(bf)
nn.relu(u)
nn.relu(k)
nn.gelu(m, approximate=False)
nn.gelu(h, approximate=False)
nn.gelu(bf)
nn.gelu(i, False)
nn.elu(m, 2.5)
nn.elu(m, alpha=w)
nn.celu(m, 2)
nn.celu(v, w)
nn.leaky_relu(m, 0.3)
nn.leaky_relu(i, 1)
nn.squareplus(m, 1)
nn.squareplus(v, w)
nn.glu(m)
nn.glu(m, axis=0)
nn.glu(t, 1)
nn.log1mexp(w)
nn.log1mexp(jnp.array([1e-6, 0.5, 0.7, 30.0]))
nn.sigmoid(c)
jax.grad(lambda x: nn.log1mexp(x).sum())(w)
jax.grad(lambda x: nn.gelu(x, False).sum())(v)
"""
)

ERRORS = """
nn.relu([1.0])
nn.sigmoid([1.0])
nn.silu([1.0])
nn.gelu("x")
nn.softplus(None)
nn.glu(m, axis=5)
nn.glu(i)
nn.sigmoid(i)
nn.silu(i)
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_odd_halves():
    with pytest.raises(ValueError, match="divisible by 2"):
        nn.glu(jnp.ones(5))


def test_the_seeds_layer():
    rng = np.random.default_rng(shardwise.numpy.asarray(0).item())
    x, weights, bias = rng.normal(size=32), rng.normal(size=(32, 4)), rng.normal(size=4)
    x, weights, bias = (a.astype(np.float32) for a in (x, weights, bias))
    layer = lambda x, w, b: nn.sigmoid(x @ w + b)  # noqa: E731
    want = "[0.02138916 0.8931118  0.5989196  0.9774251 ]"
    assert str(layer(*map(jnp.asarray, (x, weights, bias)))) == want
    mesh = Mesh(np.array(shardwise.devices()[:8]).reshape(4, 2), ("x", "y"))
    placed = (
        shardwise.device_put(x, NamedSharding(mesh, P("x"))),
        shardwise.device_put(weights, NamedSharding(mesh, P("x", "y"))),
    )
    assert str(shardwise.jit(layer)(*placed, bias)) == want


def test_eager_calls_are_one_computation():
    """On arrays a function runs as one program; while tracing its ops stand in the outer one."""
    x = np.ones(3, np.float32)
    assert str(shardwise.jit(nn.silu).lower(x).as_text()).count(" = ") == 2
    assert [str(e.op) for e in shardwise.make_jaxpr(nn.relu)(x).eqns] == ["custom_jvp_call"]  # as JAX shows it
