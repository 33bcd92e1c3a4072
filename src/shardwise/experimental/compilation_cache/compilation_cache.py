"""The folder of compiled loops: functions around the option `jax_compilation_cache_dir`."""

from shardwise.base import config
from shardwise.base.listing import listing as _listing

__all__ = ["reset_cache", "set_cache_dir"]


def set_cache_dir(path: str) -> None:
    """Keep compiled loops in a folder below `path`, as the option `jax_compilation_cache_dir` does.

    Paths of cloud storage (``gs://...``) leave them where they are kept without the option.

    >>> from shardwise.experimental.compilation_cache import compilation_cache
    >>> compilation_cache.set_cache_dir("gs://bucket/kernels")
    >>> compilation_cache.reset_cache()
    """
    config.update("jax_compilation_cache_dir", str(path))


def reset_cache() -> None:
    """Keep compiled loops where they are kept without the option.

    >>> from shardwise.experimental.compilation_cache import compilation_cache
    >>> compilation_cache.reset_cache()
    """
    config.update("jax_compilation_cache_dir", None)


__dir__ = _listing(__name__)
