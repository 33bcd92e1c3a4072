"""The exception classes of shardwise.

Every class derives from `ShardwiseError` and from the builtin class that JAX raises in the same
place, so both `except ShardwiseError` and an `except ValueError` written for JAX catch it.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

_Error = TypeVar("_Error", bound=BaseException)
_TOPIC = "_shardwise_topic"  # of errors that are not of our classes


def about(topic: str, error: _Error) -> _Error:
    """`error`, as one of those that docs/errors/`topic`.md is about. A class of ours says it by its member `topic`."""
    setattr(error, _TOPIC, topic)
    return error


def topic_of(error: BaseException) -> str:
    """The page of docs/errors that is about this error; empty if none is."""
    return getattr(error, _TOPIC, error.topic if isinstance(error, ShardwiseError) else "")


class ShardwiseError(Exception):
    """Root of all exceptions that shardwise defines."""

    topic: ClassVar[str] = ""  # a page of docs/errors


class JAXTypeError(ShardwiseError, TypeError):
    """A value of a kind that the operation cannot take."""


class ReshapeError(JAXTypeError, ValueError):
    """A shape with another number of elements: JAX 0.5.3 raises TypeError, JAX 0.10 ValueError."""


class JAXIndexError(ShardwiseError, IndexError):
    """An index that the operation cannot take."""


class ShardingTypeError(ShardwiseError):
    """An operation on explicitly sharded types has no unambiguous result sharding (JAX 0.10's class)."""

    topic: ClassVar[str] = "explicit-layouts"


class ShardingTypeErrorSeed(ShardingTypeError, TypeError):
    """`ShardingTypeError` where JAX 0.5.3 raised a plain `TypeError` (elementwise operands that disagree)."""


class ShardingValueErrorSeed(ShardingTypeError, ValueError):
    """`ShardingTypeError` where JAX 0.5.3 raised a plain `ValueError` (contractions, reshapes)."""


class ShardingNotImplementedErrorSeed(ShardingTypeError, NotImplementedError):
    """`ShardingTypeError` where JAX 0.5.3 raised a plain `NotImplementedError` (windows on split dims)."""


class MissingAxisErrorSeed(ShardwiseError, KeyError, ValueError):
    """`ValueError` where JAX 0.5.3 raised a `KeyError` (specs of shard_map with an axis that the mesh lacks)."""

    def __str__(self) -> str:
        return str(self.args[0])


class IndivisibleError(ShardwiseError, ValueError):
    """A dimension is split more ways than divide its size."""

    topic: ClassVar[str] = "uneven-dim"


class DuplicateSpecError(ShardwiseError):
    """A spec uses one mesh axis for two dimensions."""

    topic: ClassVar[str] = "mesh-axis"


class ConcretizationTypeError(JAXTypeError):
    """A traced value stands where a concrete one is needed."""

    topic: ClassVar[str] = "traced-value"


class TracerBoolConversionError(ConcretizationTypeError):
    """`bool()` of a traced value, as in `if x > 0:` under `jit`."""


class TracerIntegerConversionError(JAXTypeError):
    """A traced value stands where Python needs an integer."""

    topic: ClassVar[str] = "traced-value"


class TracerArrayConversionError(JAXTypeError):
    """NumPy conversion of a traced value."""

    topic: ClassVar[str] = "traced-value"


class UnexpectedTracerError(JAXTypeError):
    """A traced value is used outside the function call that made it."""

    topic: ClassVar[str] = "escaped-tracer"


class NonConcreteBooleanIndexError(JAXIndexError):
    """Indexing with a traced boolean mask: the result's shape would depend on values."""

    topic: ClassVar[str] = "traced-value"


class KeyReuseError(JAXTypeError):
    """A random key is consumed twice."""

    topic: ClassVar[str] = "random-keys"


class InvalidInputException(ShardwiseError, TypeError):
    """An argument is no array, scalar or other value that JAX functions take."""

    topic: ClassVar[str] = "argument-type"


class TypePromotionError(ShardwiseError, ValueError):
    """Operands have no implicit common dtype."""

    topic: ClassVar[str] = "dtypes"


class JaxprTypeError(ShardwiseError, TypeError):
    """A program is badly typed; raised by the verifier."""


class InconclusiveDimensionOperation(ShardwiseError):
    """An operation on symbolic dimensions has no answer that holds for all sizes."""


class LeakedTracerError(ShardwiseError):
    """Found by `checking_leaks`: a traced value outlived its trace."""

    topic: ClassVar[str] = "escaped-tracer"


class JaxRuntimeError(ShardwiseError, RuntimeError):
    """A failure while a compiled program or a device operation runs."""


class DivergenceError(JaxRuntimeError):
    """Devices or processes that must meet in one computation have come for different ones, or do not come."""

    topic: ClassVar[str] = "divergence"


class ConfigFrozenError(ShardwiseError, RuntimeError):
    """A setting is changed too late: the devices it describes exist already."""

    topic: ClassVar[str] = "frozen-devices"
