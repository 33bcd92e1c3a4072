"""`shardwise.experimental.pallas`: kernels over blocks, interpreted.

In: a kernel on Refs, a grid, how arrays are cut into blocks. Out: a function of arrays, with the values that JAX's interpreter gives. Names
that only a GPU or a TPU gives a meaning to can be imported; its functions refuse when they are called.
"""

import importlib as _importlib
import typing as _typing

from shardwise.base.listing import package_listing as _package_listing
from shardwise.base.refused import refuse_below as _refuse_below
from shardwise.base.refused import refuse_names as _refusing
from shardwise.experimental.pallas.access import atomic_add as atomic_add
from shardwise.experimental.pallas.access import atomic_and as atomic_and
from shardwise.experimental.pallas.access import atomic_cas as atomic_cas
from shardwise.experimental.pallas.access import atomic_max as atomic_max
from shardwise.experimental.pallas.access import atomic_min as atomic_min
from shardwise.experimental.pallas.access import atomic_or as atomic_or
from shardwise.experimental.pallas.access import atomic_xchg as atomic_xchg
from shardwise.experimental.pallas.access import atomic_xor as atomic_xor
from shardwise.experimental.pallas.access import load as load
from shardwise.experimental.pallas.access import store as store
from shardwise.experimental.pallas.access import swap as swap
from shardwise.experimental.pallas.call import pallas_call as pallas_call
from shardwise.experimental.pallas.copies import DeviceIdType as DeviceIdType
from shardwise.experimental.pallas.copies import semaphore_read as semaphore_read
from shardwise.experimental.pallas.copies import semaphore_signal as semaphore_signal
from shardwise.experimental.pallas.copies import semaphore_wait as semaphore_wait
from shardwise.experimental.pallas.grid import num_programs as num_programs
from shardwise.experimental.pallas.grid import program_id as program_id
from shardwise.experimental.pallas.memory import MemoryRef as MemoryRef
from shardwise.experimental.pallas.memory import MemorySpace as MemorySpace
from shardwise.experimental.pallas.scoped import broadcast_to as broadcast_to
from shardwise.experimental.pallas.scoped import dot as dot
from shardwise.experimental.pallas.scoped import empty as empty
from shardwise.experimental.pallas.scoped import empty_like as empty_like
from shardwise.experimental.pallas.scoped import empty_ref_like as empty_ref_like
from shardwise.experimental.pallas.scoped import estimate_cost as estimate_cost
from shardwise.experimental.pallas.scoped import loop as loop
from shardwise.experimental.pallas.scoped import max_contiguous as max_contiguous
from shardwise.experimental.pallas.scoped import multiple_of as multiple_of
from shardwise.experimental.pallas.scoped import reciprocal as reciprocal
from shardwise.experimental.pallas.scoped import run_scoped as run_scoped
from shardwise.experimental.pallas.scoped import run_state as run_state
from shardwise.experimental.pallas.scoped import when as when
from shardwise.experimental.pallas.scoped import with_scoped as with_scoped
from shardwise.experimental.pallas.sizes import align_to as align_to
from shardwise.experimental.pallas.sizes import cdiv as cdiv
from shardwise.experimental.pallas.sizes import next_power_of_2 as next_power_of_2
from shardwise.experimental.pallas.sizes import strides_from_shape as strides_from_shape
from shardwise.experimental.pallas.specs import BlockDim as BlockDim
from shardwise.experimental.pallas.specs import Blocked as Blocked
from shardwise.experimental.pallas.specs import BlockSpec as BlockSpec
from shardwise.experimental.pallas.specs import BoundedSlice as BoundedSlice
from shardwise.experimental.pallas.specs import Buffered as Buffered
from shardwise.experimental.pallas.specs import CostEstimate as CostEstimate
from shardwise.experimental.pallas.specs import Element as Element
from shardwise.experimental.pallas.specs import GridSpec as GridSpec
from shardwise.experimental.pallas.specs import IndexingMode as IndexingMode
from shardwise.experimental.pallas.specs import Indirect as Indirect
from shardwise.experimental.pallas.specs import RevisitMode as RevisitMode
from shardwise.experimental.pallas.specs import Squeezed as Squeezed
from shardwise.experimental.pallas.specs import Unblocked as Unblocked
from shardwise.experimental.pallas.specs import no_block_spec as no_block_spec
from shardwise.experimental.pallas.specs import squeezed as squeezed
from shardwise.experimental.pallas.specs import unblocked as unblocked
from shardwise.numpy.dynamic_index import Slice as Slice
from shardwise.numpy.dynamic_index import ds as ds
from shardwise.transforms.checks.checkify_errors import debug_check as debug_check

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.experimental.pallas import tpu as tpu
    from shardwise.experimental.pallas import triton as triton

ANY = MemorySpace.ANY
HOST = MemorySpace.HOST
dslice = ds


def debug_print(fmt: str, *args: _typing.Any) -> None:
    """Print values of a step."""
    from shardwise.debug import print as print_values  # start-up time

    print_values(fmt, *args)


_refuse_name = _refusing(__name__)


if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name in ("tpu", "triton"):
            return _importlib.import_module(f"{__name__}.{name}")
        return _refuse_name(name)


__dir__ = _package_listing(__name__, "tpu", "triton")

_refuse_below(__name__, ("fuser", "mosaic_gpu", "tpu_sc"))
