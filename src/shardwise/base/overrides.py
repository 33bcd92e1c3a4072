"""Context managers (and decorators) for the options that programs set in blocks; `contexts` has those of the others."""

from __future__ import annotations

from typing import Any

from shardwise.base.config import Override, config


def enable_x64(new_val: bool = True) -> Override:
    """Keep 64-bit dtypes inside the context (`new_val` False: narrow them).

    >>> with jax.enable_x64(True):
    ...     print(jnp.arange(2.0).dtype)
    float64
    """
    return config.override("jax_enable_x64", new_val)


def disable_x64() -> Override:
    """Narrow 64-bit dtypes to 32 bits inside the context.

    >>> with jax.experimental.disable_x64():
    ...     print(jnp.arange(2).dtype)
    int32
    """
    return config.override("jax_enable_x64", False)


def default_device(new_val: Any) -> Override:
    """Create uncommitted results on `new_val` (a `Device`, a platform name, or None for the first device).

    >>> with jax.default_device(jax.devices()[1]):
    ...     print(jnp.zeros(2).devices())
    {CpuDevice(id=1)}
    """
    return config.override("jax_default_device", new_val)


def threefry_partitionable(new_val: bool = True) -> Override:
    """The source of each element of random bits, in the block (`new_val`): a counter of its own (True), or from
    counters in the older order of JAX (False).

    >>> with jax.threefry_partitionable(True):
    ...     print(jax.random.bits(jax.random.key(0), (2,)))
    [4070199207 4202968722]
    """
    return config.override("jax_threefry_partitionable", new_val)


def enable_custom_prng(new_val: bool = True) -> Override:
    """Whether `random.PRNGKey`, in the block, makes typed keys, as `random.key` does (`new_val`).

    >>> with jax.enable_custom_prng(True):
    ...     print(jax.random.PRNGKey(0).dtype)
    key<fry>
    """
    return config.override("jax_enable_custom_prng", new_val)


def disable_jit(disable: bool = True) -> Override:
    """Run `jit`-ed functions op by op inside the context; `disable` False: compiled, as outside.

    >>> with jax.disable_jit():
    ...     print(jax.jit(lambda x: x + 1)(1))
    2
    """
    return config.override("jax_disable_jit", disable)


def debug_nans(new_val: bool = True) -> Override:
    """Whether to raise `FloatingPointError`, in the block, as soon as a result holds a NaN (`new_val`).

    >>> with jax.debug_nans():
    ...     jnp.log(-1.0)
    Traceback (most recent call last):
        ...
    FloatingPointError: invalid value (nan) encountered in log at ...
    """
    return config.override("jax_debug_nans", new_val)


def debug_infs(new_val: bool = True) -> Override:
    """Whether to raise `FloatingPointError`, in the block, as soon as a result holds an infinity (`new_val`).

    >>> with jax.debug_infs():
    ...     print(jnp.log(1.0))
    0.0
    """
    return config.override("jax_debug_infs", new_val)


def log_compiles(new_val: bool = True) -> Override:
    """Whether to log a line, in the block, for each function that is traced and compiled (`new_val`).

    >>> with jax.log_compiles(False):
    ...     print(jax.jit(jnp.sin)(0.0))
    0.0
    """
    return config.override("jax_log_compiles", new_val)


def explain_cache_misses(new_val: bool = True) -> Override:
    """Whether to log, in the block, why a `jit`-ed function is traced again (`new_val`).

    >>> with jax.explain_cache_misses():
    ...     print(jax.jit(jnp.sin)(0.0))
    0.0
    """
    return config.override("jax_explain_cache_misses", new_val)


def checking_leaks(new_val: bool = True) -> Override:
    """Whether to raise, in the block, when a traced value outlives its trace (`new_val`).

    >>> with jax.check_tracer_leaks():
    ...     print(jax.jit(jnp.sin)(0.0))
    0.0
    """
    return config.override("jax_check_tracer_leaks", new_val)


check_tracer_leaks = checking_leaks


def no_tracing(new_val: bool = True) -> Override:
    """Whether to raise RuntimeError, in the block, when a function is traced (`new_val`): for the parts of a program
    that must run compiled code only.

    >>> f = jax.jit(jnp.sin)
    >>> f(0.0)
    Array(0., dtype=float32, weak_type=True)
    >>> with jax.no_tracing():
    ...     print(f(0.0))
    0.0
    """
    return config.override("jax_no_tracing", new_val)


def numpy_dtype_promotion(new_val: str) -> Override:
    """How dtypes combine in the block (`new_val`). `'standard'`: JAX's promotion lattice; `'strict'`: no implicit
    promotion.

    Under 'strict', TypePromotionError where dtypes differ.

    >>> with jax.numpy_dtype_promotion("standard"):
    ...     print((jnp.ones(2, jnp.int8) + jnp.ones(2)).dtype)
    float32
    """
    return config.override("jax_numpy_dtype_promotion", new_val)


def numpy_rank_promotion(new_val: str) -> Override:
    """The effect of broadcasting between ranks in the block (`new_val`): `'allow'`, `'warn'` or `'raise'`.

    Under 'raise', ValueError where ranks differ.

    >>> with jax.numpy_rank_promotion("allow"):
    ...     print(jnp.ones((2, 1)) + jnp.ones(1))
    [[2.]
     [2.]]
    """
    return config.override("jax_numpy_rank_promotion", new_val)


def default_matmul_precision(new_val: str | None) -> Override:
    """The precision, in the block, of contractions that name none: a `lax.Precision` or its name. On CPUs all give
    the same result. ValueError for another `new_val`.

    >>> with jax.default_matmul_precision("highest"):
    ...     print(jnp.ones((2, 3)) @ jnp.ones(3))
    [3. 3.]
    """
    return config.override("jax_default_matmul_precision", new_val)


def default_prng_impl(new_val: str) -> Override:
    """The generator, in the block, behind `random.key` and `random.PRNGKey`: 'threefry2x32', 'rbg' and others.
    ValueError for another `new_val`.

    >>> with jax.default_prng_impl("rbg"):
    ...     print(jax.random.PRNGKey(0).shape)
    (4,)
    """
    return config.override("jax_default_prng_impl", new_val)


def transfer_guard(new_val: str | None) -> Override:
    """The effect of transfers in the block, in all directions (`new_val`): allow, log, disallow, log_explicit,
    disallow_explicit.

    >>> with jax.transfer_guard("log"):
    ...     print(jnp.arange(2))
    [0 1]
    """
    return config.override("jax_transfer_guard", new_val)


def transfer_guard_host_to_device(new_val: str | None) -> Override:
    """`transfer_guard` with `new_val` for host arrays that become device arrays.

    >>> with jax.transfer_guard_host_to_device("disallow"):
    ...     print(jax.device_put(2.0))
    2.0
    """
    return config.override("jax_transfer_guard_host_to_device", new_val)


def transfer_guard_device_to_device(new_val: str | None) -> Override:
    """`transfer_guard` with `new_val` for arrays that move between devices: as arguments of programs, or by
    device_put (the explicit levels). `log` writes when a program is compiled for arguments that move, not at each
    call.

    >>> with jax.transfer_guard_device_to_device("disallow"):
    ...     print(jax.device_put(jnp.arange(2), jax.devices()[1]))
    [0 1]
    """
    return config.override("jax_transfer_guard_device_to_device", new_val)


def transfer_guard_device_to_host(new_val: str | None) -> Override:
    """`new_val` has no effect: reading an array of a CPU device is no transfer in JAX either.

    >>> with jax.transfer_guard_device_to_host("disallow"):
    ...     print(jnp.arange(2))
    [0 1]
    """
    return config.override("jax_transfer_guard_device_to_host", new_val)


def on_reshard(new_val: str) -> Override:
    """Whether the partitioner may insert communication that nobody asked for: `'allow'` or `'raise'`."""
    return config.override("shardwise_on_reshard", new_val)
