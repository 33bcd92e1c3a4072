"""`shardwise.experimental.key_reuse`: errors for random keys that are used twice.

Switch it on with ``config.update("jax_debug_key_reuse", True)``, the environment variable JAX_DEBUG_KEY_REUSE, or for a part of a
program with `debug_key_reuse`. A typed key (`random.key`) that was drawn from or split is consumed; the next use of it raises
`KeyReuseError`, which names the use and the line of the earlier one. Loops, branches and compiled functions are checked inside.

`random.fold_in` and `random.key_data` do not consume; `random.clone` gives a key that may be used again on purpose. Raw keys
(`random.PRNGKey`) are plain integers and are not followed.

    >>> import shardwise as jax
    >>> with jax.debug_key_reuse(True):
    ...     key = jax.random.key(0)
    ...     x = jax.random.normal(key)
    ...     y = jax.random.normal(key)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
        ...
    shardwise.base.errors.KeyReuseError: Previously-consumed key passed to jit-compiled function at index 0 ...
"""

from shardwise.base.errors import KeyReuseError as KeyReuseError

__all__ = ["KeyReuseError"]
