"""Programs of one GPU that were first run when the model was made: scientific loops, other networks, kernels of other sizes.

As `gpu_kernels` and `gpu_models`. What these take was measured after the last change of the model that was made with figures of a GPU in
sight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from planning.gpu_kernels import BF16, F16, F32, KERNELS, M, Made, Operand, attention, convolution, floats, whole
from planning.gpu_models import MODELS, cross_entropy, normed, perceptron, through, trained

UNSEEN: dict[str, Callable[[], Made]] = {}


def unseen(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register a program: the name says what it is."""
    UNSEEN[make.__name__.replace("_", " ")] = make
    return make


def _each(name: str, f: Callable[..., Any], *args: Any) -> None:
    UNSEEN[name] = lambda: (f, args)


# Scientific programs: many of them loops of small kernels.
@unseen
def heat_equation():
    def step(_: Any, u: Any) -> Any:
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u)

    return lambda u: lax.fori_loop(0, 100, step, u), (floats(4096, 4096),)


@unseen
def bodies_with_gravity():
    def forces(x: Any) -> Any:
        apart = x[:, None] - x
        return -(apart / ((apart**2).sum(-1, keepdims=True) + 0.01) ** 1.5).sum(1)

    def step(state: Any, _: Any) -> Any:
        x, v = state
        v = v + 0.001 * forces(x)
        return (x + 0.001 * v, v), None

    return lambda x, v: lax.scan(step, (x, v), None, 10)[0], (floats(8192, 3), floats(8192, 3))


@unseen
def conjugate_gradients():
    def solve(a: Any, b: Any) -> Any:
        def step(state: Any) -> Any:
            x, r, p, rr, n = state
            ap = a @ p
            alpha = rr / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            new = r @ r
            return x, r, r + (new / rr) * p, new, n + 1

        return lax.fori_loop(0, 50, lambda _, s: step(s), (jnp.zeros_like(b), b, b, b @ b, 0))[0]

    return solve, (Operand((8192, 8192), F32, positive=True), floats(8192))


@unseen
def Markov_chains():
    def log_density(x: Any) -> Any:
        return -(x**4).sum() / 4 + (x**2).sum()

    def chain(seed: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            x, now = state
            a, b = jax.random.split(key)
            new = x + 0.3 * jax.random.normal(a, x.shape)
            then = log_density(new)
            take = jnp.log(jax.random.uniform(b)) < then - now
            return (jnp.where(take, new, x), jnp.where(take, then, now)), None

        start = jnp.zeros(16)
        keys = jax.random.split(jax.random.key(seed), 200)
        return lax.scan(step, (start, log_density(start)), keys)[0][0]

    return jax.vmap(chain), (whole(1 << 30, 4096),)


@unseen
def Lorenz_systems():
    def slope(s: Any) -> Any:
        x, y, z = s
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(_: Any, s: Any) -> Any:
        a = slope(s)
        b = slope(s + 0.005 * a)
        c = slope(s + 0.005 * b)
        return s + 0.01 / 6 * (a + 2 * b + 2 * c + slope(s + 0.01 * c))

    return lambda s: lax.fori_loop(0, 1000, step, s), (floats(3, 100_000),)


@unseen
def gradient_of_a_loop():
    def end(w: Any, x: Any) -> Any:
        x, _ = lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, 100)
        return (x**2).sum()

    return jax.grad(end), (floats(256, 256), floats(1024, 256))


@unseen
def k_means():
    def f(x: Any, centres: Any) -> Any:
        def step(_: Any, c: Any) -> Any:
            near = jnp.argmin((c**2).sum(-1) - 2 * x @ c.T, -1)
            total = jax.ops.segment_sum(x, near, num_segments=c.shape[0])
            count = jax.ops.segment_sum(jnp.ones(near.shape), near, num_segments=c.shape[0])
            return total / jnp.maximum(count, 1)[:, None]

        return lax.fori_loop(0, 10, step, centres)

    return f, (floats(200_000, 64), floats(256, 64))


@unseen
def Poisson_by_FFT():
    def f(x: Any) -> Any:
        k = jnp.fft.fftfreq(2048)
        square = k[:, None] ** 2 + jnp.fft.rfftfreq(2048) ** 2
        return jnp.fft.irfft2(jnp.where(square > 0, jnp.fft.rfft2(x) / jnp.maximum(square, 1e-9), 0))

    return f, (floats(2048, 2048),)


@unseen
def Black_Scholes():
    def price(s: Any, k: Any, t: Any) -> Any:
        d = (jnp.log(s / k) + (0.03 + 0.02) * t) / (0.2 * jnp.sqrt(t))
        cdf = jax.scipy.stats.norm.cdf
        return s * cdf(d) - k * jnp.exp(-0.03 * t) * cdf(d - 0.2 * jnp.sqrt(t))

    f = jax.vmap(jax.value_and_grad(lambda s, k, t: price(jnp.exp(s), jnp.exp(k), jnp.exp(t)), (0, 1, 2)))
    return f, (floats(1 << 22),) * 3


@unseen
def Gaussian_process():
    def evidence(scale: Any, x: Any, y: Any) -> Any:
        apart = (x**2).sum(-1)[:, None] - 2 * x @ x.T + (x**2).sum(-1)
        factor = jnp.linalg.cholesky(jnp.exp(-apart / jnp.exp(scale)) + 0.1 * jnp.eye(x.shape[0]))
        solved = lax.linalg.triangular_solve(factor, y[:, None], left_side=True, lower=True)
        return 0.5 * (solved**2).sum() + jnp.log(jnp.diagonal(factor)).sum()

    return jax.value_and_grad(evidence), (floats(), floats(2048, 8), floats(2048))


@unseen
def wave_equation_in_3_dims():
    def step(state: Any, _: Any) -> Any:
        u, old = state
        bend = sum(jnp.roll(u, s, d) for d in range(3) for s in (1, -1)) - 6 * u
        return (2 * u - old + 0.1 * bend, u), u[128, 128, 128]

    return lambda u: lax.scan(step, (u, u), None, 20), (floats(256, 256, 256),)


@unseen
def low_rank_adapters_training():
    frozen = [floats(2048, 2048, dtype=BF16) for _ in range(4)]
    params = [(floats(2048, 16), floats(16, 2048)) for _ in range(4)]

    def loss(params: Any, frozen: Any, x: Any, y: Any) -> Any:
        for (a, b), w in zip(params, frozen, strict=True):
            x = jax.nn.gelu(x @ w + (x @ a.astype(BF16)) @ b.astype(BF16))
        return ((x - y).astype(F32) ** 2).mean()

    return trained(loss, params, frozen, floats(4096, 2048, dtype=BF16), floats(4096, 2048, dtype=BF16))


@unseen
def actor_and_critic():
    def loss(params: Any, x: Any, a: Any, r: Any) -> Any:
        logits, value = through(params["pi"], x, jnp.tanh), through(params["v"], x, jnp.tanh)[:, 0]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), a[:, None], 1)[:, 0]
        return (-chosen * lax.stop_gradient(r - value) + (r - value) ** 2).mean()

    def epochs(params: Any, *data: Any) -> Any:
        def step(p: Any, _: Any) -> Any:
            return jax.tree.map(lambda w, g: w - 1e-3 * g, p, jax.grad(loss)(p, *data)), None

        return lax.scan(step, params, None, 40)[0]

    params = {"pi": perceptron([64, 64, 64, 6]), "v": perceptron([64, 64, 64, 1])}
    return epochs, (params, floats(2048, 64), whole(6, 2048), floats(2048))


# Kernels of other kinds and sizes.
_each("softmax of rows 8192", lambda x: jax.nn.softmax(x, -1), floats(4096, 8192))
_each("softmax of rows 32768", lambda x: jax.nn.softmax(x, -1), floats(1024, 32768))
_each(
    "log softmax of bfloat16", lambda x: jax.nn.log_softmax(x.astype(F32)).astype(BF16), floats(16384, 2048, dtype=BF16)
)
_each("gated unit", lambda x, y: jax.nn.silu(x) * y, *(floats(16384, 4096, dtype=BF16),) * 2)
_each("bias and relu", lambda x, b: jax.nn.relu(x + b), floats(16384, 4096), floats(4096))
_each("cast to bfloat16", lambda x: x.astype(BF16), floats(64 * M))
_each("batch norm", lambda x: (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5), floats(64, 56, 56, 256))
_each("group norm", lambda x: jax.nn.standardize(x.reshape(64, 64, 64, 8, 16), (1, 2, 4)), floats(64, 64, 64, 128))
_each("mean over the middle", lambda x: x.mean(1), floats(512, 512, 256))
_each("greatest of bfloat16", lambda x: x.max(-1), floats(16384, 8192, dtype=BF16))
_each("transpose of three", lambda x: jnp.sin(x.transpose(2, 0, 1)), floats(256, 512, 512))
_each("pad", lambda x: jnp.pad(x, ((1, 1), (3, 3))), floats(8000, 8000))
_each("one hot", lambda i: jax.nn.one_hot(i, 1000), whole(1000, 65536))
_each("quantize", lambda x: jnp.clip(jnp.round(x / x.std()), -127, 127).astype(jnp.int8), floats(64 * M))
_each("momentum of 200M", lambda p, m, g: (p - 0.1 * (0.9 * m + g), 0.9 * m + g), *(floats(200_000_000),) * 3)
_each("histogram", lambda i: jnp.zeros(256, jnp.int32).at[i].add(1), whole(256, 4 * M))
_each("gather from 1 MiB", lambda x, i: x[i], floats(M // 4), whole(M // 4, 16 * M))
_each("gather from 16 MiB", lambda x, i: x[i], floats(4 * M), whole(4 * M, 16 * M))
_each("rows by number", lambda x, i: x[i] * 2, floats(M, 32), whole(M, M))
_each("sort of 4M whole numbers", jnp.sort, whole(1 << 30, 4 * M))
_each("sort of short rows", lambda x: jnp.sort(x, -1), floats(65536, 128))
_each("argsort of 1M", jnp.argsort, floats(M))
_each("top 5 of 100k", lambda x: lax.top_k(x, 5), floats(64, 100_000))
_each("running product of rows", lambda x: jnp.cumprod(x, 1), floats(4096, 4096))
_each("FFT of 64k", jnp.fft.fft, floats(64, 65536, dtype="complex64"))
_each("FFT in 2 dims", jnp.fft.fft2, floats(8, 1024, 1024, dtype="complex64"))
_each("real FFT of rows", jnp.fft.rfft, floats(4096, 4096))
_each("Cholesky of 2048", jnp.linalg.cholesky, Operand((2048, 2048), F32, positive=True))
_each("QR of 2048 x 256", jnp.linalg.qr, floats(2048, 256))
_each("LU of 1500", lambda a: lax.linalg.lu(a)[0], floats(1500, 1500))
_each("symmetric eigenvectors of 1000", jnp.linalg.eigh, Operand((1000, 1000), F32, positive=True))
_each("SVD of 256", lambda a: jnp.linalg.svd(a, full_matrices=False), floats(256, 256))
_each("inverse of 1024", jnp.linalg.inv, floats(1024, 1024))
for _m, _k, _n in ((3072, 3072, 3072), (6144, 4096, 2048), (128, 4096, 11008), (1000, 1000, 1000), (65536, 256, 256)):
    _each(
        f"bfloat16 product {_m} x {_k} x {_n}",
        lambda x, y: x @ y,
        floats(_m, _k, dtype=BF16),
        floats(_k, _n, dtype=BF16),
    )
_each("float32 product, high", lambda x, y: jnp.matmul(x, y, precision="high"), *(floats(4096, 4096),) * 2)
_each("float32 product of 4096", lambda x, y: x @ y, *(floats(4096, 4096),) * 2)
_each("float16 product of 8192", lambda x, y: x @ y, *(floats(8192, 8192, dtype=F16),) * 2)
_each(
    "products of 64 heads",
    lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k),
    *(floats(4, 1024, 16, 64, dtype=BF16),) * 2,
)
_each("matrix times vector", lambda x, v: x @ v, floats(16384, 8192), floats(8192))
_each("outer product", lambda x, y: jnp.tanh(jnp.outer(x, y)), floats(8192), floats(8192))
_each("long attention", attention, *(floats(1, 8192, 8, 128, dtype=BF16),) * 3)
_each("convolution 5 x 5", convolution, floats(32, 64, 64, 64), floats(5, 5, 64, 64))
_each(
    "convolution with stride",
    lambda x, w: convolution(x, w, 2),
    floats(64, 56, 56, 256, dtype=BF16),
    floats(3, 3, 256, 512, dtype=BF16),
)
_each(
    "average of neighbours",
    lambda x: lax.reduce_window(x, 0.0, lax.add, (5, 5), (1, 1), "SAME") / 25,
    floats(4096, 4096),
)


@unseen
def encoder_training():
    def block(x: Any, w: Any) -> Any:
        b, t, d = x.shape
        q, k, v = (
            (x @ w[n].astype(BF16) + w[n + "b"].astype(BF16)).reshape(b, t, 12, d // 12).transpose(0, 2, 1, 3)
            for n in "qkv"
        )
        mixed = jax.nn.softmax((q @ k.swapaxes(-1, -2)).astype(F32) / 8, -1).astype(BF16) @ v
        x = normed(x + mixed.transpose(0, 2, 1, 3).reshape(b, t, d) @ w["o"].astype(BF16), w["g1"])
        y = jax.nn.gelu(x @ w["up"].astype(BF16) + w["upb"].astype(BF16)) @ w["down"].astype(BF16)
        return normed(x + y, w["g2"])

    def loss(params: Any, tokens: Any, labels: Any) -> Any:
        x = params["words"].astype(BF16)[tokens] + params["at"].astype(BF16)
        for w in params["blocks"]:
            x = block(x, w)
        return cross_entropy(x[:, 0] @ params["head"].astype(BF16), labels)

    one = {n: floats(768, 768) for n in "qkvo"} | {n + "b": floats(768) for n in "qkv"}
    one |= {
        "up": floats(768, 3072),
        "upb": floats(3072),
        "down": floats(3072, 768),
        "g1": floats(768),
        "g2": floats(768),
    }
    params = {"words": floats(30000, 768), "at": floats(384, 768), "blocks": [one] * 12, "head": floats(768, 3)}
    return trained(loss, params, whole(30000, 32, 384), whole(3, 32))


@unseen
def grouped_queries_with_rotation():
    def rotated(x: Any) -> Any:
        half = x.shape[-1] // 2
        angle = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
        c, s = jnp.cos(angle)[:, None].astype(x.dtype), jnp.sin(angle)[:, None].astype(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)

    def f(x: Any, wq: Any, wkv: Any, wo: Any) -> Any:
        b, t, d = x.shape
        q = rotated((x @ wq).reshape(b, t, 32, 128))
        k, v = jnp.split((x @ wkv).reshape(b, t, 16, 128), 2, 2)
        k, v = jnp.repeat(rotated(k), 4, 2), jnp.repeat(v, 4, 2)
        return x + attention(q, k, v).reshape(b, t, d) @ wo

    weights = (floats(4096, 4096, dtype=BF16), floats(4096, 2048, dtype=BF16), floats(4096, 4096, dtype=BF16))
    return f, (floats(2, 2048, 4096, dtype=BF16), *weights)


@unseen
def mixer_training():
    def loss(params: Any, x: Any, y: Any) -> Any:
        for w in params["blocks"]:
            z = jax.nn.gelu(jnp.einsum("btc,ts->bsc", x, w["t1"]))
            x = x + jnp.einsum("bsc,st->btc", z, w["t2"])
            x = x + jax.nn.gelu(x @ w["c1"]) @ w["c2"]
        return cross_entropy(x.mean(1) @ params["head"], y)

    one = {"t1": floats(196, 384), "t2": floats(384, 196), "c1": floats(512, 2048), "c2": floats(2048, 512)}
    return trained(loss, {"blocks": [one] * 6, "head": floats(512, 100)}, floats(64, 196, 512), whole(100, 64))


@unseen
def gated_recurrent_training():
    def loss(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            z, r = jnp.split(jax.nn.sigmoid(x @ w["x"] + h @ w["h"]), 2, -1)
            h = (1 - z) * h + z * jnp.tanh(x @ w["xn"] + (r * h) @ w["hn"])
            return h, h

        _, hs = lax.scan(step, jnp.zeros((xs.shape[1], 1024)), xs)
        return ((hs[:-1] @ w["out"] - xs[1:]) ** 2).mean()

    w = {"x": floats(128, 2048), "h": floats(1024, 2048), "xn": floats(128, 1024), "hn": floats(1024, 1024)}
    return trained(loss, w | {"out": floats(1024, 128)}, floats(64, 128, 128))


@unseen
def autoencoder_training():
    def loss(p: Any, x: Any, seed: Any) -> Any:
        mean, spread = jnp.split(through(p["in"], x), 2, -1)
        z = mean + jnp.exp(spread) * jax.random.normal(jax.random.key(seed), mean.shape)
        return ((through(p["out"], z) - x) ** 2).mean() + (mean**2 + jnp.exp(2 * spread) - 2 * spread).mean()

    params = {"in": perceptron([784, 1024, 512, 64]), "out": perceptron([32, 512, 1024, 784])}
    return trained(loss, params, floats(4096, 784), whole(9))


@unseen
def equation_in_a_network():
    def residual(p: Any, xt: Any) -> Any:
        u = lambda xt: through(p, xt, jnp.tanh)[0]  # noqa: E731
        du = jax.grad(u)
        bend = jax.jvp(lambda v: du(v)[0], (xt,), (jnp.array([1.0, 0.0]),))[1]
        return du(xt)[1] + u(xt) * du(xt)[0] - 0.01 * bend

    def loss(p: Any, points: Any) -> Any:
        return (jax.vmap(residual, (None, 0))(p, points) ** 2).mean()

    return trained(loss, perceptron([2, 64, 64, 64, 1]), floats(16384, 2))


@unseen
def spectral_operator():
    def f(x: Any, weights: Any, skips: Any) -> Any:
        for (re, im), w in zip(weights, skips, strict=True):
            modes = jnp.fft.rfft2(x, axes=(1, 2))[:, :16, :16]
            mixed = jnp.einsum("bxyi,xyio->bxyo", modes, re + 1j * im)
            full = jnp.zeros((x.shape[0], 128, 65, 32), "complex64").at[:, :16, :16].set(mixed)
            x = jax.nn.gelu(jnp.fft.irfft2(full, axes=(1, 2)) + x @ w)
        return x

    weights = [(floats(16, 16, 32, 32), floats(16, 16, 32, 32)) for _ in range(4)]
    return f, (floats(16, 128, 128, 32), weights, [floats(32, 32)] * 4)


@unseen
def spins_on_a_lattice():
    even = (jnp.arange(2048)[:, None] + jnp.arange(2048)) % 2

    def step(i: Any, s: Any) -> Any:
        around = sum(jnp.roll(s, d, axis) for d in (1, -1) for axis in (0, 1))
        turn = jax.random.uniform(jax.random.fold_in(jax.random.key(0), i), s.shape) < jnp.exp(-0.88 * s * around)
        return jnp.where(turn & (even == i % 2), -s, s)

    return lambda s: lax.fori_loop(0, 20, step, jnp.sign(s)), (floats(2048, 2048),)


@unseen
def fluid_on_a_lattice():
    ways = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    weights = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4

    def step(_: Any, f: Any) -> Any:
        f = jnp.stack([jnp.roll(f[n], way, (0, 1)) for n, way in enumerate(ways)])
        mass = f.sum(0)
        u, v = (sum(way[d] * f[n] for n, way in enumerate(ways)) / mass for d in range(2))
        rest = 1 - 1.5 * (u * u + v * v)
        speeds = [3 * (way[0] * u + way[1] * v) for way in ways]
        return f - jnp.stack(
            [
                0.6 * (f[n] - w * mass * (rest + s + s * s / 2))
                for n, (s, w) in enumerate(zip(speeds, weights, strict=True))
            ]
        )

    return lambda x: lax.fori_loop(0, 20, step, 1 + 0.01 * x), (floats(9, 1024, 1024),)


@unseen
def balanced_transport():
    def f(x: Any, y: Any) -> Any:
        cost = -((x[:, None] - y) ** 2).sum(-1)

        def step(_: Any, fg: Any) -> Any:
            f, g = fg
            f = -jax.nn.logsumexp(cost + g, 1)
            return f, -jax.nn.logsumexp(cost + f[:, None], 0)

        return lax.fori_loop(0, 20, step, (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0])))

    return f, (floats(4096, 3), floats(4096, 3))


@unseen
def hidden_states():
    def f(step: Any, seen: Any, start: Any) -> Any:
        def forward(alpha: Any, scores: Any) -> Any:
            alpha = jax.nn.logsumexp(alpha[:, :, None] + step, 1) + scores
            return alpha, None

        return lax.scan(forward, start, seen)[0]

    return f, (floats(64, 64), floats(200, 512, 64), floats(512, 64))


@unseen
def many_oscillators():
    def energy(q: Any) -> Any:
        return (q**2).sum() / 2 + ((q[1:] - q[:-1]) ** 4).sum() / 4

    def step(state: Any, _: Any) -> Any:
        q, p = state
        p = p - 0.005 * jax.grad(energy)(q)
        q = q + 0.01 * p
        return (q, p - 0.005 * jax.grad(energy)(q)), energy(q)

    return lambda q, p: lax.scan(step, (q, p), None, 200), (floats(1 << 18), floats(1 << 18))


@unseen
def ridge_regression():
    def f(x: Any, y: Any) -> Any:
        return jax.scipy.linalg.solve(x.T @ x + 0.1 * jnp.eye(x.shape[1]), x.T @ y, assume_a="pos")

    return f, (floats(100_000, 1024), floats(100_000, 8))


@unseen
def quantized_layer():
    def f(x: Any, w: Any, scale: Any) -> Any:
        return jax.nn.gelu(x @ (w.astype(BF16) * scale))

    return f, (floats(64, 8192, dtype=BF16), whole(100, 8192, 8192, dtype="int8"), floats(8192, dtype=BF16))


ALL = KERNELS | MODELS | UNSEEN
"""All programs, those that were first run last behind the others."""
