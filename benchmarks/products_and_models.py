"""Matrix products, convolutions, linear algebra; whole models, forward and a training step, and their first calls."""

from __future__ import annotations

import matmul
import training
from registry import MOST, case, normal, placed, rows

PRODUCTS, ALGEBRA, MODELS, FIRST = "Products", "Linear algebra", "Models", "First calls"


@case(PRODUCTS, devices=MOST, flops=2.0 * 2048**3)
def matmul_2048(jax, jnp, np):
    """2048 x 2048 by 2048 x 2048, float32, the rows split."""
    x, y = rows(jax, np, normal(np, 2048, 2048)), jnp.asarray(normal(np, 2048, 2048))
    f = jax.jit(lambda x, y: x @ y)
    return lambda: f(x, y)


@case(PRODUCTS, flops=2.0 * 2048**3)
def matmul_contraction(jax, jnp, np):
    """The same, the contracted dim split on both sides."""
    x = placed(jax, np, normal(np, 2048, 2048), None, "x")
    y = placed(jax, np, normal(np, 2048, 2048), "x", None)
    f = jax.jit(lambda x, y: x @ y)
    return lambda: f(x, y)


@case(PRODUCTS, devices=(1, 8))
def matmul_few_rows(jax, jnp, np):
    """16 rows of 4096 by 4096 x 4096, float32, as a model answers: the matrix's columns split."""
    x, y = jnp.asarray(normal(np, 16, 4096)), placed(jax, np, normal(np, 4096, 4096), None, "x")
    f = jax.jit(lambda x, y: x @ y)
    return lambda: f(x, y)


def _product(name):
    formula, left, right, dtype, wanted = matmul.CASES[name]

    def prepare(jax, jnp, np):
        split = "x" if left[0] % jax.device_count() == 0 else None
        x = placed(jax, np, jnp.asarray(normal(np, *left), dtype), split)
        y = jnp.asarray(normal(np, *right), dtype)
        f = jax.jit(lambda x, y: jnp.einsum(formula, x, y, preferred_element_type=wanted))
        return lambda: f(x, y)

    prepare.__name__ = f"matmul_{name}"
    prepare.__doc__ = f"`{formula}` of {left} and {right}, {dtype}"
    case(PRODUCTS, devices=(1, 8))(prepare)


for _name in ("square_512", "vector", "scores_long", "weighted_long", "many_16", "bfloat16"):
    if _name in matmul.CASES:
        _product(_name)


@case(PRODUCTS, devices=(1, 8), flops=4.0 * 64 * 512 * 512 * 64)
def attention(jax, jnp, np):
    """`softmax(q @ k.T / 8) @ v` for 8 texts, 8 heads, 512 places, width 64."""
    q, k, v = (rows(jax, np, normal(np, 8, 8, 512, 64)) for _ in range(3))
    f = jax.jit(lambda q, k, v: jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8) @ v)
    return lambda: f(q, k, v)


@case(PRODUCTS, devices=(1, 8), flops=2.0 * 4096 * 64 * 1024)
def dense_gelu(jax, jnp, np):
    """`gelu(x @ w + b)` of 4096 x 64 by 64 x 1024."""
    x, w, b = rows(jax, np, normal(np, 4096, 64)), jnp.asarray(normal(np, 64, 1024)), jnp.asarray(normal(np, 1024))
    f = jax.jit(lambda x, w, b: jax.nn.gelu(x @ w + b))
    return lambda: f(x, w, b)


@case(PRODUCTS, devices=(1, 8))
def outer_products(jax, jnp, np):
    """256 outer products of 64 and 128, as gradients per example have them, and their squares' sums."""
    a, b = rows(jax, np, normal(np, 256, 64)), rows(jax, np, normal(np, 256, 128))
    f = jax.jit(lambda a, b: (jnp.einsum("bi,bj->bij", a, b) ** 2).sum((1, 2)))
    return lambda: f(a, b)


@case(PRODUCTS)
def convolution(jax, jnp, np):
    """3 x 3 convolution, 64 images of 32 x 32 with 64 channels to 64."""
    x = rows(jax, np, normal(np, 64, 64, 32, 32))
    w = jnp.asarray(normal(np, 64, 64, 3, 3))
    f = jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"))
    return lambda: f(x, w)


@case(PRODUCTS)
def convolution_last(jax, jnp, np):
    """3 x 3 convolution with channels last, 64 images of 32 x 32 with 32 channels to 64."""
    x, w = rows(jax, np, normal(np, 64, 32, 32, 32)), jnp.asarray(normal(np, 3, 3, 32, 64))
    layout = ("NHWC", "HWIO", "NHWC")
    f = jax.jit(lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout))
    return lambda: f(x, w)


@case(PRODUCTS, devices=(1,))
def signal_filter(jax, jnp, np):
    """`jnp.convolve` of a signal of 100,000 with 64 taps."""
    x, taps, f = jnp.asarray(normal(np, 100_000)), jnp.asarray(normal(np, 64)), jax.jit(jnp.convolve)
    return lambda: f(x, taps)


@case(PRODUCTS)
def convolution_gradient(jax, jnp, np):
    """Its derivatives by images and kernel, with channels last."""
    layout = ("NHWC", "HWIO", "NHWC")
    x, w = rows(jax, np, normal(np, 64, 32, 32, 64)), jnp.asarray(normal(np, 3, 3, 64, 64))
    convolve = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)  # noqa: E731
    f = jax.jit(jax.grad(lambda x, w: (convolve(x, w) ** 2).sum(), (0, 1)))
    return lambda: f(x, w)


def _grouped(jax, jnp, np):
    """4096 rows of 512 in 8 groups of unequal sizes, one of them empty; a 512 x 512 matrix for each group."""
    x, w = rows(jax, np, normal(np, 4096, 512)), jnp.asarray(normal(np, 8, 512, 512))
    return x, w, jnp.asarray(np.array([512, 100, 900, 0, 1000, 584, 700, 300], np.int32))


@case(PRODUCTS, flops=2.0 * 4096 * 512 * 512)
def ragged_rows(jax, jnp, np):
    """4096 rows in 8 groups, each by its own 512 x 512 matrix (`lax.ragged_dot`)."""
    x, w, sizes = _grouped(jax, jnp, np)
    f = jax.jit(jax.lax.ragged_dot)
    return lambda: f(x, w, sizes)


@case(PRODUCTS, flops=6.0 * 4096 * 512 * 512)
def ragged_rows_gradient(jax, jnp, np):
    """Its derivatives by rows and matrices."""
    x, w, sizes = _grouped(jax, jnp, np)
    f = jax.jit(jax.grad(lambda x, w: (jax.lax.ragged_dot(x, w, sizes) ** 2).sum(), (0, 1)))
    return lambda: f(x, w)


@case(ALGEBRA)
def cholesky(jax, jnp, np):
    """Cholesky of 64 matrices of 64 x 64."""
    a = normal(np, 64, 64, 64)
    x = rows(jax, np, a @ a.swapaxes(-1, -2) + 64 * np.eye(64, dtype=np.float32))
    f = jax.jit(jnp.linalg.cholesky)
    return lambda: f(x)


@case(ALGEBRA)
def cholesky_256(jax, jnp, np):
    """Cholesky of 256 matrices of 64 x 64."""
    a = normal(np, 256, 64, 64)
    x = rows(jax, np, a @ a.swapaxes(-1, -2) + 64 * np.eye(64, dtype=np.float32))
    f = jax.jit(jnp.linalg.cholesky)
    return lambda: f(x)


@case(ALGEBRA, devices=(1, 8))
def cholesky_1024(jax, jnp, np):
    """Cholesky of one matrix of 1024 x 1024."""
    a = normal(np, 1024, 1024)
    x = jnp.asarray(a @ a.T + 1024 * np.eye(1024, dtype=np.float32))
    f = jax.jit(jnp.linalg.cholesky)
    return lambda: f(x)


@case(ALGEBRA)
def svd(jax, jnp, np):
    """SVD of 64 matrices of 32 x 32."""
    x = rows(jax, np, normal(np, 64, 32, 32))
    f = jax.jit(lambda x: jnp.linalg.svd(x, full_matrices=False))
    return lambda: f(x)


@case(ALGEBRA)
def solve(jax, jnp, np):
    """64 systems of 64 equations."""
    x = rows(jax, np, normal(np, 64, 64, 64) + 64 * np.eye(64, dtype=np.float32))
    b = rows(jax, np, normal(np, 64, 64, 1))
    f = jax.jit(jnp.linalg.solve)
    return lambda: f(x, b)


def _mlp(jax, jnp, np):
    x = rows(jax, np, normal(np, 512, 256))
    layers = [np.full((256, 256), 0.01, np.float32) for _ in range(3)]

    def forward(layers, x):
        for layer in layers:
            x = jax.nn.relu(x @ layer)
        return x.sum()

    return forward, (placed(jax, np, layers), x)


@case(MODELS, devices=MOST)
def mlp_forward(jax, jnp, np):
    """Three layers of 256 on 512 rows."""
    forward, arguments = _mlp(jax, jnp, np)
    f = jax.jit(forward)
    return lambda: f(*arguments)


@case(MODELS, devices=(1, 8))
def per_example(jax, jnp, np):
    """`vmap(grad)`: the derivatives of three layers of 64 for each of 256 rows."""
    layers = placed(jax, np, [np.full((64, 64), 0.01, np.float32) for _ in range(3)])
    x = rows(jax, np, normal(np, 256, 64))

    def loss(layers, x):
        for layer in layers:
            x = jax.nn.relu(x @ layer)
        return x.sum()

    f = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))
    return lambda: f(layers, x)


def _model(name, devices):
    def prepare(jax, jnp, np):
        step, state = training.CASES[name](jax, jnp, np)
        kept = [state]

        def call():
            kept[0], loss = step(kept[0])
            return kept[0], loss

        return call

    prepare.__name__ = name
    prepare.__doc__ = training.CASES[name].__doc__
    case(MODELS, devices=devices)(prepare)


for _name in training.CASES:
    _model(_name, (1,) if _name.startswith("scan") else (1, 8, 64))


@case(FIRST, first=True)
def first_elementwise(jax, jnp, np):
    """The first call of `jit(2 * sin(x) + 1)`."""
    x = rows(jax, np, np.ones(8 * jax.device_count(), np.float32))
    return lambda: jax.jit(lambda x: 2 * jnp.sin(x) + 1)(x)


@case(FIRST, first=True)
def first_mlp(jax, jnp, np):
    """The first call of three layers of 256 on 512 rows."""
    forward, arguments = _mlp(jax, jnp, np)
    return lambda: jax.jit(lambda *given: forward(*given))(*arguments)


@case(FIRST, first=True)
def first_mlp_step(jax, jnp, np):
    """The first call of its training step."""
    forward, (layers, x) = _mlp(jax, jnp, np)

    def step(layers, x):
        loss, slopes = jax.value_and_grad(forward)(layers, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, layers, slopes), loss

    return lambda: jax.jit(lambda *given: step(*given))(layers, x)


@case(FIRST, first=True)
def first_polynomial(jax, jnp, np):
    """The first call of `3 * x + x * x` on 64 MB."""
    x = rows(jax, np, np.ones((4096, 4096), np.float32))
    return lambda: jax.jit(lambda x: 3 * x + x * x)(x)


@case(FIRST, first=True, devices=MOST)
def lower_gpt_step(jax, jnp, np):
    """`lower` of a training step of a small GPT."""
    step, state = training.CASES["gpt_step"](jax, jnp, np)
    return lambda: _nothing(jax.jit(step).lower(state))


@case(FIRST, first=True, devices=MOST)
def compile_gpt_step(jax, jnp, np):
    """`lower` and `compile` of that step."""
    step, state = training.CASES["gpt_step"](jax, jnp, np)
    return lambda: _nothing(jax.jit(step).lower(state).compile())


def _nothing(made):
    """No arrays to wait for."""
    return ()


@case(FIRST, first=True)
def first_from_callback(jax, jnp, np):
    """The first call of `make_array_from_callback`."""
    value = np.ones(8 * jax.device_count(), np.float32)
    split = rows(jax, np, value).sharding
    return lambda: jax.make_array_from_callback(value.shape, split, lambda index: value[index])
