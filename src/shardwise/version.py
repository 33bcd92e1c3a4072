"""`shardwise.version`: this release's number, or under the alias that of the JAX whose behaviour the dialect follows."""

from typing import Any as _Any

import shardwise as _shardwise


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        return _shardwise.__version__
    if name == "__version_info__":
        return tuple(int(part) for part in _shardwise.__version__.split("."))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
