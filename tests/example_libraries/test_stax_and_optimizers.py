"""Layers and optimizers of the example libraries: their shapes, their parameters, and that they learn; figures beside JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.example_libraries import optimizers, stax

KEY = sw.random.PRNGKey(0)

# (layer, input shape, output shape)
LAYERS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "dense": (stax.Dense(3), (-1, 4), (-1, 3)),
    "convolution": (stax.Conv(2, (3, 3), (2, 2), "SAME"), (-1, 5, 5, 1), (-1, 3, 3, 2)),
    "transposed": (stax.Conv1DTranspose(2, (3,), (2,)), (2, 3, 1), (2, 7, 2)),
    "batch norm": (stax.BatchNorm(axis=0, scale=False), (4, 3), (4, 3)),
    "pools": (
        stax.serial(stax.MaxPool((2, 2)), stax.AvgPool((2, 2)), stax.SumPool((2, 2))),
        (-1, 5, 5, 1),
        (-1, 2, 2, 1),
    ),
    "fans": (
        stax.serial(stax.FanOut(2), stax.parallel(stax.Dense(2), stax.Tanh), stax.FanInConcat(), stax.Flatten),
        (-1, 3),
        (-1, 5),
    ),
    "made for the shape": (stax.shape_dependent(lambda shape: stax.Dense(shape[-1])), (2, 3), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    (init, apply), shape, wanted = LAYERS[name]
    found, params = init(KEY, shape)
    assert found == wanted
    out = sw.jit(cast(Callable[..., Any], apply))(params, jnp.ones(tuple(3 if n == -1 else n for n in shape)))
    assert out.shape == tuple(3 if n == -1 else n for n in wanted)


def test_dropout_keeps_the_mean_and_wants_a_key() -> None:
    _, apply = stax.serial(stax.Identity, stax.Dropout(0.5))
    out = apply([(), ()], jnp.ones(10_000), rng=KEY)
    assert set(np.unique(out)) == {0, 2} and abs(float(out.mean()) - 1) < 0.05
    with pytest.raises(ValueError, match="PRNG key"):
        stax.Dropout(0.5)[1]((), jnp.ones(3))


# The parameter after four steps on the gradient of its square, from [1, -2]; figures of JAX 0.10.
STEPS = {
    "sgd": (optimizers.sgd(0.1), [0.4096, -0.8192]),
    "momentum": (optimizers.momentum(0.1, 0.5), [0.1226, -0.2452]),
    "nesterov": (optimizers.nesterov(0.1, 0.5), [0.1216, -0.2432]),
    "adam": (optimizers.adam(0.1), [0.6039, -1.6015]),
    "decay": (optimizers.sgd(optimizers.exponential_decay(0.1, 1, 0.5)), [0.6669, -1.3338]),
}


@pytest.mark.parametrize("name", STEPS)
def test_optimizers(name: str) -> None:
    (init, update, get_params), wanted = STEPS[name]
    step = sw.jit(lambda i, s: update(i, sw.grad(lambda p: jnp.sum(p["x"] ** 2))(get_params(s)), s))
    state = init({"x": jnp.array([1.0, -2.0])})
    for i in range(4):
        state = step(i, state)
    np.testing.assert_allclose(get_params(state)["x"], wanted, rtol=0, atol=5.1e-5)  # the figures have four digits


@pytest.mark.parametrize("name", ["adagrad", "rmsprop", "rmsprop_momentum", "adamax", "sm3"])
def test_the_others_go_downhill_and_their_states_pack(name: str) -> None:
    init, update, get_params = getattr(optimizers, name)(0.05)
    state = init([jnp.ones(2), (jnp.ones((2, 3)),)])
    state = update(0, get_params(state), state)
    assert all(bool((x < 1).all()) for x in sw.tree.leaves(get_params(state)))
    packed = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    assert sw.tree.structure(packed) == sw.tree.structure(state)


def test_gradients_are_clipped_and_trees_must_fit() -> None:
    (clipped,) = optimizers.clip_grads([3 * jnp.ones(4)], 1.0)
    assert float(optimizers.l2_norm([clipped])) == pytest.approx(1)
    init, update, _ = optimizers.sgd(0.1)
    with pytest.raises(TypeError, match="did not match the parameter tree"):
        update(0, {"x": 1.0}, init([1.0]))
    with pytest.raises(ValueError, match="one entry more"):
        optimizers.piecewise_constant([1], [1])
    assert optimizers.piecewise_constant([1, 2], [0.3, 0.2, 0.1])(2) == pytest.approx(0.2)


def test_older_names():
    assert stax.logsoftmax is sw.nn.log_softmax
    assert stax.randn is sw.nn.initializers.normal and stax.glorot is sw.nn.initializers.glorot_normal


def test_sm3_of_a_scalar() -> None:
    init, update, get_params = optimizers.sm3(0.1)
    state = init(jnp.float32(3.0))
    for i in range(2):
        state = update(i, jnp.float32(1.0), state)
    assert get_params(state).shape == () and float(get_params(state)) < 3
