"""Processes that do the same in different words: none of it is a divergence."""

import functools
import gc
import tempfile
import threading
from typing import Any

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.multihost_utils import sync_global_devices
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me, count = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("x",))
split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
values = np.arange(16, dtype=np.float32)
x, w = jax.device_put(values, split), jax.device_put(values[:4] + 1, whole)
NAMES = {"weights", "bias", "scale", "gate", "mean", "table"}  # in another order in each process: text hashes differ
turned = sorted(NAMES) if me else sorted(NAMES, reverse=True)


def set_order_of_eager_ops():
    parameters = {name: w for name in sorted(NAMES)}
    for order in (NAMES, turned):
        for name in order:
            parameters[name] = parameters[name] * (1 + len(name))
    return (x * sum((parameters[name] for name in sorted(NAMES)), jnp.zeros_like(w))[0]).sum()


def set_order_inside_of_jit():
    def step(x, parameters):
        new = {}
        for name in turned:
            new[name] = jnp.sin(parameters[name]) * len(name)
        return x.sum() * sum(new[name] for name in sorted(NAMES))

    return jax.jit(step)(x, {name: w[0] for name in turned}).sum()


def dict_order_of_arguments():
    parameters = {name: w * len(name) for name in turned}
    return jax.jit(lambda p, x: (p["gate"][0] * x).sum() + p["bias"][1])(parameters, x)


def other_lines():
    text = "\n" * (7 * me) + "f = lambda x: (jax.numpy.cos(x) * 2).sum()"
    space: dict[str, Any] = {"jax": jax}
    exec(compile(text, f"program{me}.py", "exec"), space)
    return jax.jit(space["f"])(x)


def prints_on_one():
    y = (x * 2).sum()
    if me == 0:
        str((y * 100, w[0] + 1, w.max()))
        jax.jit(lambda v, k: v * k)(w, 3.0)
    return y + (x + w[1]).sum()


def names_of_files():
    with tempfile.NamedTemporaryFile() as file:
        f = jax.jit(lambda v: (jax.debug.callback(lambda n: file.name and None, v[0]), v.sum())[1])
        return f(x)


def addresses():
    class Settings:
        pass

    settings = Settings()
    step = functools.partial(lambda s, k, x: x.sum() * k, settings, 2)
    square = jax.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: (square(primals[0]), 2 * primals[0] * tangents[0]))
    return jax.jit(step)(x) + jax.jit(jax.grad(lambda x: square(x).sum()))(x).sum()


def local_work():
    y = jnp.ones(3 + me)
    for _ in range(me):
        y = jnp.sin(y)
    return (x * 3).sum()


def other_threads():
    """Which of two loaders is first is anybody's guess."""
    made = {}

    def load(k):
        made[k] = jax.make_array_from_callback((16,), split, lambda i: values[i] + k)

    for k in (0, 1) if me else (1, 0):
        thread = threading.Thread(target=load, args=(k,))
        thread.start()
        thread.join()
    return (made[0] - made[1]).sum()


def forgotten_caches():
    f = jax.jit(lambda x: (x * 4).sum())
    f(x)
    if me:
        jax.clear_caches()
        gc.collect()
    return f(x)


def manual():
    f = shard_map(lambda v: lax.psum(jnp.sin(v), "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
    return jax.jit(f)(x)[0] if me else f(x)[0]  # traced op by op, or at once


def numbers_of_one_kind():
    return (x * (2.0 if me else np.float64(2.0).item())).sum() + (x * np.float32(3)).sum()


def constants():
    table = np.repeat(values, 2)[::2] if me else values.copy()
    return jax.jit(lambda x: (x * table).sum())(x)


def drawn():
    return (x * jax.random.normal(jax.random.PRNGKey(3), (16,))).sum()


for case in (
    set_order_of_eager_ops,
    set_order_inside_of_jit,
    dict_order_of_arguments,
    other_lines,
    prints_on_one,
    names_of_files,
    addresses,
    local_work,
    other_threads,
    forgotten_caches,
    manual,
    numbers_of_one_kind,
    constants,
    drawn,
):
    try:
        float(case())
        sync_global_devices(case.__name__)
    except RuntimeError as error:
        raise SystemExit(f"{case.__name__}: {error}") from None
print("done", flush=True)
