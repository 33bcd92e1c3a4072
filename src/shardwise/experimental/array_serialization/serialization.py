"""The interface of checkpoint managers. None is here: libraries bring their own, or results are kept with numpy.save."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

__all__ = ["GlobalAsyncCheckpointManagerBase"]


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """Writes arrays in the background; `wait_until_finished` before they count as written."""

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise the error that the writing ran into, if any."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Return once all is written; raises as `check_for_errors` does."""

    @abc.abstractmethod
    def serialize(self, arrays: Any, tensorstore_specs: Any, *, on_commit_callback: Any) -> None:
        """Begin to write arrays."""

    @abc.abstractmethod
    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[dict[str, Any]],
        global_shapes: Any = None,
        dtypes: Any = None,
    ) -> Any:
        """Read arrays."""
