"""`shardwise.numpy`: NumPy's functions on arrays, traced or not, sharded or not; named as in jax.numpy.

In: arrays, NumPy arrays, scalars. Out: arrays that lie as their operands do. Each module lists its public names in `__all__`.
"""

import sys as _sys
import typing as _typing

from shardwise.base.doors import open_package as _open_package
from shardwise.numpy.binary import *  # noqa: F403
from shardwise.numpy.bits import *  # noqa: F403
from shardwise.numpy.constants import *  # noqa: F403
from shardwise.numpy.creation import *  # noqa: F403
from shardwise.numpy.cross import *  # noqa: F403
from shardwise.numpy.cumulative import *  # noqa: F403
from shardwise.numpy.diagonals import *  # noqa: F403
from shardwise.numpy.einsum import *  # noqa: F403
from shardwise.numpy.float_parts import *  # noqa: F403
from shardwise.numpy.foreign import *  # noqa: F403
from shardwise.numpy.functional import *  # noqa: F403
from shardwise.numpy.histograms import *  # noqa: F403
from shardwise.numpy.indexing import *  # noqa: F403
from shardwise.numpy.joining import *  # noqa: F403
from shardwise.numpy.manipulation import *  # noqa: F403
from shardwise.numpy.means import *  # noqa: F403
from shardwise.numpy.named_ufuncs import *  # noqa: F403
from shardwise.numpy.namespace_info import *  # noqa: F403
from shardwise.numpy.nan_reductions import *  # noqa: F403
from shardwise.numpy.operators import install_operators as _install_operators
from shardwise.numpy.operators import sign_methods as _sign_methods
from shardwise.numpy.padding import *  # noqa: F403
from shardwise.numpy.polynomial import *  # noqa: F403
from shardwise.numpy.predicates import *  # noqa: F403
from shardwise.numpy.products import *  # noqa: F403
from shardwise.numpy.putting import *  # noqa: F403
from shardwise.numpy.quantiles import *  # noqa: F403
from shardwise.numpy.ranges import *  # noqa: F403
from shardwise.numpy.rearranging import *  # noqa: F403
from shardwise.numpy.reductions import *  # noqa: F403
from shardwise.numpy.scalar_types import *  # noqa: F403
from shardwise.numpy.selection import *  # noqa: F403
from shardwise.numpy.sets import *  # noqa: F403
from shardwise.numpy.shapes import *  # noqa: F403
from shardwise.numpy.signal import *  # noqa: F403
from shardwise.numpy.sorting_search import *  # noqa: F403
from shardwise.numpy.statistics import *  # noqa: F403
from shardwise.numpy.transcendental import *  # noqa: F403
from shardwise.numpy.unary import *  # noqa: F403

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.numpy import fft as fft
    from shardwise.numpy import linalg as linalg

_install_operators()
_sign_methods(_sys.modules[__name__])

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__ = _open_package(__name__, "fft linalg")
