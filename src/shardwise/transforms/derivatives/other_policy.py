"""Another policy for all checkpointed functions: what would the program need if each had been given this one?

In: a policy. Out: a context in which `checkpoint` takes it in place of its own argument.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from shardwise.base.config import Setting
from shardwise.base.lazy_dataclasses import dataclass

Policy = Callable[..., Any]


@dataclass(slots=True, eq=False)
class OtherPolicy:
    """A policy that takes the place of every checkpoint's own.

    Attributes:
        policy: the argument of `checkpoint`.
        used: whether a function was checkpointed in the meantime.
    """

    policy: Policy | None
    used: bool = False


_other: Setting[OtherPolicy | None] = Setting("checkpoint_policy", None)


@contextmanager
def every_policy(policy: Policy | None) -> Generator[OtherPolicy]:
    """Trace checkpointed functions as if each had been given `policy`."""
    other = OtherPolicy(policy)
    with _other.override(other):
        yield other


def chosen_policy(own: Policy | None) -> Policy | None:
    """The policy of a checkpoint that was given `own`."""
    other = _other.get()
    if other is None:
        return own
    other.used = True
    return other.policy
