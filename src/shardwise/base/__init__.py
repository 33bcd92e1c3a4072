"""The ground floor: settings, exception classes, dtypes and pytrees.

In: environment variables and `config.update` calls. Out: `config`, which every layer reads, and `errors`, the
exception classes that every layer raises. Imports nothing else of shardwise.
"""

from shardwise.base import errors as errors
from shardwise.base import logs as _logs  # noqa: F401  # pyright: ignore[reportUnusedImport]  # sets up what jax_logging_level asks for
from shardwise.base import optree_at_exit as optree_at_exit
from shardwise.base.config import config as config
