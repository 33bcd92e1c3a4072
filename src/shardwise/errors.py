"""`shardwise.errors`: the exception classes, named as in jax.errors."""

from shardwise.base.errors import ConcretizationTypeError as ConcretizationTypeError
from shardwise.base.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from shardwise.base.errors import JAXIndexError as JAXIndexError
from shardwise.base.errors import JaxprTypeError as JaxprTypeError
from shardwise.base.errors import JaxRuntimeError as JaxRuntimeError
from shardwise.base.errors import JAXTypeError as JAXTypeError
from shardwise.base.errors import KeyReuseError as KeyReuseError
from shardwise.base.errors import NonConcreteBooleanIndexError as NonConcreteBooleanIndexError
from shardwise.base.errors import ShardwiseError as ShardwiseError
from shardwise.base.errors import TracerArrayConversionError as TracerArrayConversionError
from shardwise.base.errors import TracerBoolConversionError as TracerBoolConversionError
from shardwise.base.errors import TracerIntegerConversionError as TracerIntegerConversionError
from shardwise.base.errors import UnexpectedTracerError as UnexpectedTracerError
