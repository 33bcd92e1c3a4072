"""Context managers (and decorators) for the options that look for mistakes and for JAX's less important options."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from typing import Any

from shardwise.base.config import Override, Setting, config


def enable_checks(new_val: bool = True) -> Override:
    """Whether to verify each program, in the block, after it was traced and after every pass of the compiler
    (`new_val`).

    >>> with jax.enable_checks(True):
    ...     print(jax.jit(jnp.sin)(0.0))
    0.0
    """
    return config.override("jax_enable_checks", new_val)


def debug_key_reuse(new_val: bool = True) -> Override:
    """Whether to raise KeyReuseError, in the block, where a typed key is used twice (`new_val`); see
    `experimental.key_reuse`.

    >>> with jax.debug_key_reuse(True):
    ...     print(jax.random.bits(jax.random.key(0)).dtype)
    uint32
    """
    return config.override("jax_debug_key_reuse", new_val)


def legacy_prng_key(new_val: str) -> Override:
    """What, in the block, functions of `random` do with keys of raw uint32 words (`new_val`): `'allow'`, `'warn'` or
    `'error'`.

    >>> with jax.legacy_prng_key("allow"):
    ...     print(jax.random.bits(jax.random.PRNGKey(0)).dtype)
    uint32
    """
    return config.override("jax_legacy_prng_key", new_val)


def no_execution(new_val: bool = True) -> Override:
    """Whether to raise RuntimeError, in the block, when a compiled program runs (`new_val`); tracing and compiling
    still work.

    >>> with jax.no_execution():
    ...     print(jax.jit(jnp.sin).lower(0.0).out_info.shape)
    ()
    """
    return config.override("jax_no_execution", new_val)


def explicit_x64_dtypes(new_val: Any) -> Override:
    """The effect of asking for a 64-bit dtype while those are off: `'warn'` (and narrow it) or `'error'`."""
    return config.override("jax_explicit_x64_dtypes", new_val)


def array_garbage_collection_guard(new_val: str | None) -> Override:
    """`new_val` can only be None: arrays are freed with their last reference. NotImplementedError for a guard.

    >>> with jax.array_garbage_collection_guard(None):
    ...     print(jnp.arange(2))
    [0 1]
    """
    return config.override("jax_array_garbage_collection_guard", new_val)


def remove_size_one_mesh_axis_from_type(new_val: bool = True) -> Override:
    """Whether types leave out Explicit axes of size 1, which split nothing, in the block (`new_val`).

    >>> with jax.remove_size_one_mesh_axis_from_type(True):
    ...     print(jax.typeof(jnp.ones(2)))
    ShapedArray(float32[2])
    """
    return config.override("jax_remove_size_one_mesh_axis_from_type", new_val)


def softmax_custom_jvp(new_val: bool = True) -> Override:
    """`new_val` has no effect: softmax has one derivative, equal to that of both settings in JAX.

    >>> with jax.softmax_custom_jvp(True):
    ...     print(jax.nn.softmax(jnp.zeros(2)))
    [0.5 0.5]
    """
    return config.override("jax_softmax_custom_jvp", new_val)


def spmd_mode(new_val: str) -> Override:
    """`new_val` has no effect: JAX 0.5.3 has the option and does not read it.

    >>> with jax.spmd_mode("allow_jit"):
    ...     print(jnp.arange(2))
    [0 1]
    """
    return config.override("jax_spmd_mode", new_val)


class thread_guard(ContextDecorator):
    """A computation over several processes raises RuntimeError in any thread but the one that entered the context.

    Threads that start such computations in a different order on each process would mix up the data.
    """

    def __init__(self, new_val: bool = True) -> None:
        setting, parse = config.option("jax_thread_guard")
        self._setting = setting
        self._value = parse("jax_thread_guard", new_val)
        self._saved: list[tuple[bool, int | None]] = []

    def __enter__(self) -> None:
        self._saved.append((self._setting.value, _Guard.thread))
        _note_guard(self._setting.value, self._value)
        self._setting.set_global(self._value)

    def __exit__(self, *exc: object) -> None:
        value, _Guard.thread = self._saved.pop()
        self._setting.set_global(value)

    def _recreate_cm(self) -> thread_guard:
        return thread_guard(self._value)


class _Guard:
    """The one thread that may start computations over several processes; None: all threads may."""

    thread: int | None = None


def _note_guard(old: bool, new: bool) -> None:
    _Guard.thread = threading.get_ident() if new else None


config.before_update("jax_thread_guard", _note_guard)


def check_thread_guard() -> None:
    """RuntimeError if another thread has set the thread guard."""
    if _Guard.thread is not None and _Guard.thread != threading.get_ident():
        raise RuntimeError(
            "A computation over several processes was started from a thread other than the one in which the thread guard was set "
            "(jax_thread_guard). Start it from that thread, so that all processes run their computations in one order."
        )


def allow_f16_reductions(new_val: bool = True) -> Override:
    """Where `new_val` is False, `lax.reduce_sum` of float16 or bfloat16 raises ValueError; `jnp.sum` converts them first.

    >>> with jax.allow_f16_reductions(False):
    ...     print(jnp.sum(jnp.ones(3, jnp.float16)))
    3.0
    """
    return config.override("jax_allow_f16_reductions", new_val)


def auto_pcast(new_val: bool = True) -> Override:
    """`new_val` can only be True: values become varying where an op needs it. NotImplementedError for False.

    >>> with jax.auto_pcast(True):
    ...     print(jnp.arange(2))
    [0 1]
    """
    return config.override("jax_auto_pcast", new_val)


def jax2tf_associative_scan_reductions(new_val: bool = True) -> Override:
    """`new_val` has no effect: there is no jax2tf.

    >>> with jax.jax2tf_associative_scan_reductions(True):
    ...     print(jnp.cumsum(jnp.arange(3)))
    [0 1 3]
    """
    return config.override("jax2tf_associative_scan_reductions", new_val)


class UserContext:
    """A user-defined value; functions are traced once per value. Set it by ``with context(value):``, read it as `value`."""

    def __init__(self, default_value: Any) -> None:
        self._setting: Setting[Any] = Setting("user_context", default_value)

    @property
    def value(self) -> Any:
        """This thread's value."""
        return self._setting.get()

    def __call__(self, new_value: Any) -> Override:
        return self._setting.override(new_value)


def make_user_context(default_value: Any = None) -> UserContext:
    """A user-defined context, whose value is `default_value` outside blocks. Functions under `jit` are traced once
    for each of its values, which must be hashable.

    >>> level = jax.make_user_context(0)
    >>> with level(2):
    ...     print(level.value)
    2
    """
    return UserContext(default_value)
