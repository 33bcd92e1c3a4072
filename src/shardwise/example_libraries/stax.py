"""Layers as pairs of functions: ``init_fun(rng, input_shape) -> (output_shape, params)``, ``apply_fun(params, inputs, **kwargs)``.

`serial` and `parallel` make layers of layers. Keyword arguments pass through to all of them: `rng` reaches `Dropout`. A size of -1
in a shape, usual for the batch, stays open.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise import nn, random
from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.base.shapes import Shape
from shardwise.lax import adaptive as lax
from shardwise.nn.initializers import glorot_normal, normal, ones, zeros
from shardwise.transforms.jit.jaxpr import eval_shape

glorot, randn, logsoftmax = glorot_normal, normal, nn.log_softmax  # older names of theirs
elu, gelu, leaky_relu, relu, selu, softplus = nn.elu, nn.gelu, nn.leaky_relu, nn.relu, nn.selu, nn.softplus
log_softmax, sigmoid, softmax, standardize = nn.log_softmax, nn.sigmoid, nn.softmax, nn.standardize

InitFun = Callable[..., tuple[Any, Any]]
Layer = tuple[InitFun, Callable[..., Any]]


def Dense(out_dim: int, W_init: Any = None, b_init: Any = None) -> Layer:
    """``inputs @ W + b`` with `out_dim` columns."""
    W_init = glorot_normal() if W_init is None else W_init
    b_init = normal() if b_init is None else b_init

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        k1, k2 = random.split(rng)
        return (*input_shape[:-1], out_dim), (W_init(k1, (input_shape[-1], out_dim)), b_init(k2, (out_dim,)))

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return jnp.dot(inputs, W) + b

    return init_fun, apply_fun


def _shape_after(fun: Callable[[Any], Any], shape: Shape, open_dim: int) -> Shape:
    """The shape of `fun` of an array; `open_dim`, where it is -1, stays open."""
    out = eval_shape(fun, np.broadcast_to(np.float32(0), tuple(1 if n == -1 else n for n in shape))).shape
    return (*out[:open_dim], shape[open_dim], *out[open_dim + 1 :])


def _convolution(
    conv: Callable[..., Any],
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None,
    padding: Any,
    W_init: Any,
    b_init: Any,
) -> Layer:
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    steps = tuple(strides) if strides else (1,) * len(filter_shape)
    W_init = glorot_normal(rhs_spec.index("I"), rhs_spec.index("O")) if W_init is None else W_init
    b_init = normal(1e-6) if b_init is None else b_init

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        sizes = iter(filter_shape)
        channels = {"O": out_chan, "I": input_shape[lhs_spec.index("C")]}
        kernel = tuple(channels[c] if c in channels else next(sizes) for c in rhs_spec)
        bias = tuple(out_chan if c == "C" else 1 for c in out_spec)
        k1, k2 = random.split(rng)
        W, b = W_init(k1, kernel), b_init(k2, bias)
        return _shape_after(lambda x: apply_fun((W, b), x), input_shape, lhs_spec.index("N")), (W, b)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        W, b = params
        return conv(inputs, W, steps, padding, dimension_numbers=dimension_numbers) + b

    return init_fun, apply_fun


def GeneralConv(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = None,
) -> Layer:
    """A convolution; `dimension_numbers` are three texts such as ``('NHWC', 'HWIO', 'NHWC')``."""
    return _convolution(
        lax.conv_general_dilated, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init
    )


def GeneralConvTranspose(
    dimension_numbers: Any,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Any = None,
    b_init: Any = None,
) -> Layer:
    """A transposed convolution."""
    return _convolution(lax.conv_transpose, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))


def BatchNorm(
    axis: Any = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """Zero mean and unit variance over the dims `axis`, then a learned scale and shift of each entry of the others."""
    axes = (axis,) if jnp.isscalar(axis) else tuple(axis)

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        shape = tuple(n for i, n in enumerate(input_shape) if i not in axes)
        k1, k2 = random.split(rng)
        return input_shape, (beta_init(k1, shape) if center else (), gamma_init(k2, shape) if scale else ())

    def apply_fun(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        z = nn.standardize(x, axes, epsilon=epsilon)
        z = jnp.expand_dims(gamma, axes) * z if scale else z
        return z + jnp.expand_dims(beta, axes) if center else z

    return init_fun, apply_fun


def elementwise(fun: Callable[..., Any], **fun_kwargs: Any) -> Layer:
    """A layer without parameters that applies `fun` to each element."""
    return lambda rng, input_shape: (input_shape, ()), lambda params, inputs, **kwargs: fun(inputs, **fun_kwargs)


Tanh = elementwise(jnp.tanh)
Relu = elementwise(nn.relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(nn.log_softmax, axis=-1)
Softmax = elementwise(nn.softmax, axis=-1)
Softplus = elementwise(nn.softplus)
Sigmoid = elementwise(nn.sigmoid)
Elu = elementwise(nn.elu)
LeakyRelu = elementwise(nn.leaky_relu)
Selu = elementwise(nn.selu)
Gelu = elementwise(nn.gelu)


def _pooling(reducer: Callable[..., Any], init_val: Any, rescaled: bool) -> Callable[..., Layer]:
    def layer(
        window_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: str = "VALID",
        spec: str | None = None,
    ) -> Layer:
        """A reduction over windows of the spatial dims; `spec` names the dims, ``'NHWC'`` unless given."""
        names = spec or "NHWC"
        sizes, steps = iter(window_shape), iter(strides or (1,) * len(window_shape))
        window = tuple(1 if c in "NC" else next(sizes) for c in names)
        stride = tuple(1 if c in "NC" else next(steps) for c in names)

        def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
            return _shape_after(lambda x: apply_fun((), x), input_shape, names.index("N")), ()

        def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
            out = lax.reduce_window(inputs, init_val, reducer, window, stride, padding)
            if not rescaled:
                return out
            counts = lax.reduce_window(jnp.ones_like(inputs), 0.0, lax.add, window, stride, padding)
            return out / counts

        return init_fun, apply_fun

    return layer


MaxPool = _pooling(lax.max, -jnp.inf, rescaled=False)
SumPool = _pooling(lax.add, 0.0, rescaled=False)
AvgPool = _pooling(lax.add, 0.0, rescaled=True)


def _flatten() -> Layer:
    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        return (input_shape[0], math.prod(input_shape[1:])), ()

    return init_fun, lambda params, inputs, **kwargs: jnp.reshape(inputs, (inputs.shape[0], -1))


Flatten = _flatten()
Identity: Layer = (lambda rng, input_shape: (input_shape, ()), lambda params, inputs, **kwargs: inputs)


def FanOut(num: int) -> Layer:
    """The same input `num` times, for `parallel`."""
    return lambda rng, input_shape: ([input_shape] * num, ()), lambda params, inputs, **kwargs: [inputs] * num


FanInSum: Layer = (
    lambda rng, input_shape: (input_shape[0], ()),
    lambda params, inputs, **kwargs: functools.reduce(operator.add, inputs),
)


def FanInConcat(axis: int = -1) -> Layer:
    """Several inputs joined along `axis`."""

    def init_fun(rng: Any, input_shape: Sequence[Shape]) -> tuple[Any, Any]:
        first = input_shape[0]
        at = axis % len(first)
        return (*first[:at], sum(shape[at] for shape in input_shape), *first[at + 1 :]), ()

    return init_fun, lambda params, inputs, **kwargs: jnp.concatenate(inputs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Keeps each element with probability `rate`, scaled to the same mean; ValueError on application without `rng`."""

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout layer requires apply_fun to be called with a PRNG key argument: "
                "apply_fun(params, inputs, rng=key)."
            )
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return lambda rng, input_shape: (input_shape, ()), apply_fun


def _keys(rng: Any, count: int) -> list[Any]:
    return [None] * count if rng is None else list(random.split(rng, count))


def serial(*layers: Layer) -> Layer:
    """Each layer's result is the next one's input."""
    inits, applies = [init for init, _ in layers], [apply for _, apply in layers]

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        params = []
        for init in inits:
            rng, key = random.split(rng)
            input_shape, layer_params = init(key, input_shape)
            params.append(layer_params)
        return input_shape, params

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        for fun, own, key in zip(applies, params, _keys(kwargs.pop("rng", None), len(layers)), strict=True):
            inputs = fun(own, inputs, rng=key, **kwargs)
        return inputs

    return init_fun, apply_fun


def parallel(*layers: Layer) -> Layer:
    """One input for each layer, a list of their results."""
    inits, applies = [init for init, _ in layers], [apply for _, apply in layers]

    def init_fun(rng: Any, input_shape: Any) -> tuple[Any, Any]:
        shapes_and_params = [
            init(key, shape)
            for init, key, shape in zip(inits, random.split(rng, len(layers)), input_shape, strict=True)
        ]
        return tuple(shape for shape, _ in shapes_and_params), tuple(params for _, params in shapes_and_params)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        keys = _keys(kwargs.pop("rng", None), len(layers))
        return [f(p, x, rng=k, **kwargs) for f, p, x, k in zip(applies, params, inputs, keys, strict=True)]

    return init_fun, apply_fun


def shape_dependent(make_layer: Callable[[Shape], Layer]) -> Layer:
    """A layer that `make_layer(input_shape)` makes when the shape is known."""

    def init_fun(rng: Any, input_shape: Shape) -> tuple[Any, Any]:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply_fun(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init_fun, apply_fun


__dir__ = _listing(__name__)
