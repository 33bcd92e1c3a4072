"""Drawn programs give the same as one function as op by op, on one device and on eight."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.small.kernel import available
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.runtime.small.agreement import agree, f32

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
drawn = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]  # its metaclass has no types
)


class Maker:
    """Draws ops over a growing list of values; floats stay within a few units."""

    def __init__(self, seed, depth=2):
        self.random = random.Random(seed)
        self.depth = depth

    def pick(self, values: Any, want: Any = lambda v: True) -> Any:
        found = [v for v in values if want(v)]
        return self.random.choice(found) if found else None

    def step(self, values):
        r = self.random
        x = self.pick(values)
        kind = np.dtype(x.dtype).kind
        real = kind not in "biu"
        choice = r.choice([*range(11), *((11, 12, 13, 14) if self.depth else ()), 15, 16, 17])
        if choice <= 2:
            y = self.pick(values, lambda v: v.dtype == x.dtype and v.shape == x.shape)
            y = y[..., :1] if x.ndim and r.random() < 0.3 else y
            if kind == "b":
                return r.choice([x & y, x | y, x ^ y])
            out = r.choice(
                [lambda: x + y, lambda: x - y, lambda: x * y, lambda: jnp.maximum(x, y), lambda: jnp.minimum(x, y)]
            )()
            return jnp.tanh(out) * 2 if real else out
        if choice == 3:
            if real:
                return r.choice(
                    [jnp.sin, jnp.tanh, jnp.abs, lambda v: jnp.exp(-v * v), jnp.negative, lambda v: v / (v * v + 1)]
                )(x)
            return ~x if kind == "b" else r.choice([lambda: x // 3, lambda: x % 5, lambda: x << 1, lambda: -x])()
        if choice == 4 and not real:
            y = self.pick(values, lambda v: v.dtype == x.dtype and v.shape == x.shape)
            return jnp.where(x > y, x, y ^ 1) if kind != "b" else x.astype(r.choice([np.int8, f32, np.uint32]))
        if choice == 5 and x.ndim:
            return x.transpose(r.sample(range(x.ndim), x.ndim))
        if choice == 6 and x.ndim:
            d = r.randrange(x.ndim)
            n = x.shape[d]
            a = r.randrange(n)
            cut = slice(a, r.randrange(a, n) + 1) if r.random() < 0.7 else slice(None, None, -1)
            return x[(slice(None),) * d + (cut,)]
        if choice == 7:
            y = x.reshape(-1)
            return jnp.broadcast_to(y, (r.randrange(1, 4), y.size)) if y.size < 60 else y.reshape(1, -1)
        if choice == 8 and x.ndim:
            d = r.randrange(x.ndim)
            if r.random() < 0.5 or kind == "b":
                y = self.pick(values, lambda v: v.dtype == x.dtype and v.shape == x.shape)
                return jnp.concatenate([x, y, x], d) if x.size < 200 else None
            return jnp.pad(x, [(r.randrange(3), r.randrange(3)) for _ in x.shape]) if x.size < 200 else None
        if choice == 9 and x.ndim:
            d = r.choice([None, *range(x.ndim)])
            if kind == "b":
                return r.choice([jnp.any, jnp.all])(x, axis=d)
            out = r.choice([jnp.sum, jnp.max, jnp.min, jnp.argmax])(x, axis=d)
            return jnp.tanh(out) if real and out.dtype == x.dtype else out.astype(x.dtype)
        if choice == 10 and x.ndim:
            i = self.pick(values, lambda v: v.dtype == np.int32)
            at = (i.sum() % 7 if i is not None else jnp.int32(0)).astype(np.int32) - 2
            size = r.randrange(1, x.shape[0] + 1)
            window = lax.dynamic_slice_in_dim(x, at, size, 0)
            return window if r.random() < 0.5 else lax.dynamic_update_slice_in_dim(x, window[::-1], at + 1, 0)
        if choice == 17 and x.ndim and kind != "b":
            out = r.choice([lax.cumsum, lax.cummax, lax.cummin])(x, r.randrange(x.ndim), reverse=r.random() < 0.5)
            return jnp.tanh(out) if real else out
        if choice == 17:
            return lax.bitcast_convert_type(x, np.uint32) if x.dtype in (f32, np.int32) else None
        if choice in (15, 16):
            i = self.pick(values, lambda v: v.dtype == np.int32 and v.size < 20)
            if i is None or not x.ndim:
                return None
            i = i.reshape(-1) % 9 - 4 if choice == 15 else i.sum() % 9 - 4
            if r.random() < 0.5:
                return x[i] if r.random() < 0.5 else x.at[..., i].get(mode=r.choice(["clip", "fill"]))
            new = self.pick(values, lambda v: v.dtype == x.dtype and v.ndim <= 1)
            if new is None or kind == "b":
                return None
            out = r.choice(["set", "add", "max", "min", "multiply"])
            out = getattr(x.at[i] if x.ndim == 1 else x.at[i.sum(), ..., i], out)(new.reshape(-1)[0])
            return jnp.tanh(out) if real else out
        if choice >= 11:
            return self.control(values, x, choice)
        return None

    def control(self, values, x, choice):
        r = self.random
        inner = Maker(r.randrange(1 << 30), self.depth - 1)
        y = self.pick(values)
        if choice == 11:

            def body(i, c):
                new = inner.values([*values[:3], c[0], c[1], i], 4)
                return inner.like(new, c[0]), inner.like(new[::-1], c[1])

            return lax.fori_loop(0, r.choice([0, 1, 3, x.size % 4]), body, (x, y))[r.randrange(2)]
        if choice == 12:

            def step(c, row):
                new = inner.values([c, y, *([] if row is None else [row])], 4)
                return inner.like(new, c), inner.like(new[1:], c)

            xs = x if x.ndim and r.random() < 0.7 else None
            c, ys = lax.scan(step, y, xs, length=None if xs is not None else 3, reverse=r.random() < 0.5)
            return r.choice([c, ys])
        if choice == 13:

            def test(c):
                return (c[0] < 5) & (c[0] >= 0)

            def body_(c):
                new = inner.values([c[1], y], 3)
                return c[0] + 1 + (new[-1].size % 2), inner.like(new, c[1])

            return lax.while_loop(test, body_, (jnp.int32(r.randrange(7)), x))[1]
        which = self.pick(values, lambda v: v.dtype == np.int32)
        index = (which.sum() if which is not None else jnp.int32(1)) % 3
        a, b, c = (Maker(r.randrange(1 << 30), 0) for _ in range(3))
        return lax.switch(index, [lambda v, m=m: m.like(m.values([v, y], 3), v) for m in (a, b, c)], x)

    def values(self, values, count):
        out = list(values)
        for _ in range(count):
            new = self.step(out)
            if new is not None and 0 < new.size < 3000:
                out.append(new)
        return out

    def like(self, values, x):
        """The last value that can stand for `x` in a carry."""
        return next((v for v in reversed(values) if v.shape == x.shape and v.dtype == x.dtype), x)


def inputs(seed, dtypes=(f32, np.int32, bool)):
    rng = np.random.default_rng(seed)
    shapes = [(), (3,), (2, 4), (5, 7), (4, 3, 6)]
    out = []
    for k, dtype in enumerate((*dtypes, f32)):
        shape = shapes[(seed + k) % len(shapes)]
        out.append(jnp.asarray((rng.normal(size=shape) * 3).astype(dtype)))
    return [*out, jnp.asarray(rng.normal(size=(3, 5)).astype(f32)), jnp.asarray(rng.integers(0, 9, 4).astype(np.int32))]


@drawn
@given(st.integers(0, 10**6))
def test_drawn_programs(seed):
    agree(lambda *values: Maker(seed).values(values, 14), *inputs(seed))


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, ml_dtypes.bfloat16, np.float64, np.uint8, np.int64])
def test_drawn_programs_of_other_types(dtype):
    with config.override("jax_enable_x64", True):
        agree(lambda *values: Maker(7, 1).values(values, 20), *inputs(3, (dtype, np.int32, dtype)))


@drawn
@given(st.integers(0, 10**6))
def test_drawn_programs_on_eight_devices(seed):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))
    values = []
    for v in inputs(seed):
        v = jnp.concatenate([v.reshape(1, -1)] * 8)
        values.append(sw.device_put(v, NamedSharding(mesh, random.Random(seed).choice([P("x"), P(("x", "y")), P()]))))
    agree(lambda *given: Maker(seed, 1).values(given, 8), *values)
