"""Optimizers as triples of functions: ``init(params) -> state``, ``update(step, gradients, state) -> state``, ``get_params(state)``.

In: trees of arrays. Out: an `OptimizerState`, itself a tree, which passes through jit. Step sizes are numbers or schedules,
functions of the step's number. New optimizers are written for one array and lifted to trees by `optimizer`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import (
    PyTreeDef,
    register_pytree_node,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_reduce,
    tree_unflatten,
)

Schedule = Callable[[Any], Any]
Init = Callable[[Any], Any]
Update = Callable[[Any, Any, Any], Any]
GetParams = Callable[[Any], Any]


@dataclass(frozen=True)
class OptimizerState:
    """The state of an optimizer: a flat list of its values, the structure of the parameters, that of each parameter's values."""

    packed_state: tuple[Any, ...]
    tree_def: PyTreeDef
    subtree_defs: tuple[PyTreeDef, ...]


register_pytree_node(
    OptimizerState,
    lambda s: ((s.packed_state,), (s.tree_def, s.subtree_defs)),
    lambda trees, children: OptimizerState(children[0], *trees),
)


class Optimizer(NamedTuple):
    """The three functions of an optimizer."""

    init_fn: Init
    update_fn: Update
    params_fn: GetParams


class JoinPoint:
    """Marks in a tree where the state of one parameter stands, as `unpack_optimizer_state` gives it."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Lift an optimizer for one array to one for trees of arrays.

    `opt_maker(...)` gives ``init(x0) -> state``, ``update(step, gradient, state) -> state`` and ``get_params(state) -> x``, whose
    state is a tree of arrays. TypeError from the lifted update where the gradient has another structure than the parameters.
    """

    @functools.wraps(opt_maker)
    def make_optimizer(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def pack_states(states: Sequence[Any], tree: PyTreeDef) -> OptimizerState:
            flat = [tree_flatten(s) for s in states]
            return OptimizerState(tuple(tuple(leaves) for leaves, _ in flat), tree, tuple(sub for _, sub in flat))

        def states(opt_state: OptimizerState) -> list[Any]:
            return [
                tree_unflatten(sub, leaves)
                for sub, leaves in zip(opt_state.subtree_defs, opt_state.packed_state, strict=True)
            ]

        def tree_init(params: Any) -> OptimizerState:
            leaves, tree = tree_flatten(params)
            return pack_states([init(x) for x in leaves], tree)

        def tree_update(i: Any, gradients: Any, opt_state: OptimizerState) -> OptimizerState:
            leaves, tree = tree_flatten(gradients)
            if tree != opt_state.tree_def:
                raise TypeError(
                    f"optimizer update function was passed a gradient tree that did not match the parameter tree: "
                    f"parameters have {opt_state.tree_def}, gradients {tree}."
                )
            return pack_states([update(i, g, s) for g, s in zip(leaves, states(opt_state), strict=True)], tree)

        def tree_params(opt_state: OptimizerState) -> Any:
            return tree_unflatten(opt_state.tree_def, [get_params(s) for s in states(opt_state)])

        return Optimizer(tree_init, tree_update, tree_params)

    return make_optimizer


# -- optimizers ------------------------------------------------------------------------------------------------------------------


@optimizer
def sgd(step_size: Any) -> tuple[Init, Update, GetParams]:
    """Gradient descent."""
    rate = make_schedule(step_size)
    return lambda x0: x0, lambda i, g, x: x - rate(i) * g, lambda x: x


@optimizer
def momentum(step_size: Any, mass: float) -> tuple[Init, Update, GetParams]:
    """Gradient descent along a velocity that keeps `mass` of itself at each step."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * velocity, velocity

    return lambda x0: (x0, jnp.zeros_like(x0)), update, lambda state: state[0]


@optimizer
def nesterov(step_size: Any, mass: float) -> tuple[Init, Update, GetParams]:
    """Momentum that looks a step ahead."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - rate(i) * (mass * velocity + g), velocity

    return lambda x0: (x0, jnp.zeros_like(x0)), update, lambda state: state[0]


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> tuple[Init, Update, GetParams]:
    """Steps divided by the root of the sum of all squared gradients, with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, mean = state
        squares = squares + jnp.square(g)
        scaled_gradient = jnp.where(squares > 0, g / jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
        mean = (1 - momentum) * scaled_gradient + momentum * mean
        return x - rate(i) * mean, squares, mean

    return lambda x0: (x0, jnp.zeros_like(x0), jnp.zeros_like(x0)), update, lambda state: state[0]


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> tuple[Init, Update, GetParams]:
    """Steps divided by the root of a running mean of squared gradients."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean = state
        mean = mean * gamma + jnp.square(g) * (1 - gamma)
        return x - rate(i) * g / jnp.sqrt(mean + eps), mean

    return lambda x0: (x0, jnp.zeros_like(x0)), update, lambda state: state[0]


@optimizer
def rmsprop_momentum(
    step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> tuple[Init, Update, GetParams]:
    """`rmsprop` along a velocity."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, velocity = state
        mean = mean * gamma + jnp.square(g) * (1 - gamma)
        velocity = momentum * velocity + rate(i) * g / jnp.sqrt(mean + eps)
        return x - velocity, mean, velocity

    return lambda x0: (x0, jnp.zeros_like(x0), jnp.zeros_like(x0)), update, lambda state: state[0]


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> tuple[Init, Update, GetParams]:
    """Adam: running means of gradients and of their squares, both corrected for having begun at zero."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, squares = state
        mean = (1 - b1) * g + b1 * mean
        squares = (1 - b2) * jnp.square(g) + b2 * squares
        unbiased_mean = mean / (1 - jnp.asarray(b1, mean.dtype) ** (i + 1))
        spread = squares / (1 - jnp.asarray(b2, mean.dtype) ** (i + 1))
        return x - rate(i) * unbiased_mean / (jnp.sqrt(spread) + eps), mean, squares

    return lambda x0: (x0, jnp.zeros_like(x0), jnp.zeros_like(x0)), update, lambda state: state[0]


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> tuple[Init, Update, GetParams]:
    """Adam with the largest gradient seen, slowly forgotten, in place of the mean square."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = (1 - b1) * g + b1 * mean
        largest = jnp.maximum(b2 * largest, jnp.abs(g))
        return x - (rate(i) / (1 - b1 ** (i + 1))) * mean / (largest + eps), mean, largest

    return lambda x0: (x0, jnp.zeros_like(x0), jnp.zeros_like(x0)), update, lambda state: state[0]


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> tuple[Init, Update, GetParams]:
    """SM3: squared gradients are kept as one vector per dim, their smallest stands for an element's."""
    rate = make_schedule(step_size)

    def along(vector: Any, axis: int, ndim: int) -> Any:
        return vector.reshape(tuple(-1 if a == axis else 1 for a in range(ndim)))

    def init(x0: Any) -> Any:
        x0 = jnp.asarray(x0)
        return x0, jnp.zeros_like(x0), [jnp.zeros(n, x0.dtype) for n in x0.shape or (1,)]

    def update(i: Any, g: Any, state: Any) -> Any:
        x, mean, vectors = state
        bound = functools.reduce(jnp.minimum, [along(v, a, x.ndim) for a, v in enumerate(vectors)]) + jnp.square(g)
        scaled_gradient = jnp.where(bound > 0, g / jnp.sqrt(jnp.where(bound > 0, bound, 1)), 0)
        mean = (1 - momentum) * scaled_gradient + momentum * mean
        if x.ndim:
            vectors = [jnp.max(bound, axis=tuple(b for b in range(x.ndim) if b != a)) for a in range(x.ndim)]
        else:
            vectors = [bound.reshape(1)]
        return x - rate(i) * mean, mean, vectors

    return init, update, lambda state: state[0]


# -- schedules -------------------------------------------------------------------------------------------------------------------


def constant(step_size: Any) -> Schedule:
    """A constant step size."""
    return lambda i: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """`step_size` times `decay_rate` per `decay_steps`."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """`step_size` over one plus `decay_rate` per `decay_steps`; in stairs if `staircase`."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: float = 1.0) -> Schedule:
    """From `step_size` to `final_step_size` within `decay_steps`, along a power of the remaining fraction."""

    def schedule(i: Any) -> Any:
        left = 1 - jnp.minimum(i, decay_steps) / decay_steps
        return left**power * (step_size - final_step_size) + final_step_size

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """``values[k]`` after `k` of the `boundaries`; ValueError unless there is one value more than boundaries."""
    edges, levels = jnp.array(boundaries), jnp.array(values)
    if not edges.ndim == levels.ndim == 1:
        raise ValueError("boundaries and values must be sequences")
    if edges.shape[0] != levels.shape[0] - 1:
        raise ValueError(
            f"values must have one entry more than boundaries: got {levels.shape[0]} and {edges.shape[0]}."
        )
    return lambda i: levels[jnp.sum(i > edges)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule as it is, a number as a constant one; TypeError for anything else."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(f"a step size is a number or a function of the step, got {type(scalar_or_schedule)}.")


# -- gradients and states ----------------------------------------------------------------------------------------------------------


def l2_norm(tree: Any) -> Any:
    """The root of the sum of the squares of all elements of all arrays."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree_leaves(tree)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """The gradients, scaled down together where their `l2_norm` is above `max_norm`."""
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The parameters' tree with a `JoinPoint` at each leaf that holds that parameter's values: for checkpoints."""
    states = [
        tree_unflatten(sub, leaves) for sub, leaves in zip(opt_state.subtree_defs, opt_state.packed_state, strict=True)
    ]
    return tree_unflatten(opt_state.tree_def, [JoinPoint(s) for s in states])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """`unpack_optimizer_state` undone."""
    points, tree = tree_flatten(marked_pytree)
    if not tree_reduce(lambda ok, p: ok and isinstance(p, JoinPoint), points, True):
        raise TypeError("pack_optimizer_state takes a tree whose leaves are JoinPoints.")
    flat = [tree_flatten(p.subtree) for p in points]
    return OptimizerState(tuple(tuple(leaves) for leaves, _ in flat), tree, tuple(sub for _, sub in flat))


__dir__ = _listing(__name__)
