"""shardwise: one array type spread over any number of devices.

`import shardwise as jax, shardwise.numpy as jnp` is all that a JAX program changes; `shardwise run prog.py` runs one unchanged.
"""

import importlib as _importlib
import typing as _typing

from shardwise import sharding as _sharding
from shardwise.base import config as config
from shardwise.base import uncaught as _uncaught
from shardwise.base.dtypes import float0 as float0
from shardwise.base.gone import no_attribute as _no_attribute
from shardwise.base.overrides import check_tracer_leaks as check_tracer_leaks
from shardwise.base.overrides import checking_leaks as checking_leaks
from shardwise.base.overrides import debug_infs as debug_infs
from shardwise.base.overrides import debug_nans as debug_nans
from shardwise.base.overrides import default_device as default_device
from shardwise.base.overrides import default_matmul_precision as default_matmul_precision
from shardwise.base.overrides import default_prng_impl as default_prng_impl
from shardwise.base.overrides import disable_jit as disable_jit
from shardwise.base.overrides import enable_custom_prng as enable_custom_prng
from shardwise.base.overrides import enable_x64 as enable_x64
from shardwise.base.overrides import explain_cache_misses as explain_cache_misses
from shardwise.base.overrides import log_compiles as log_compiles
from shardwise.base.overrides import numpy_dtype_promotion as numpy_dtype_promotion
from shardwise.base.overrides import numpy_rank_promotion as numpy_rank_promotion
from shardwise.base.overrides import threefry_partitionable as threefry_partitionable
from shardwise.base.overrides import transfer_guard as transfer_guard
from shardwise.base.overrides import transfer_guard_device_to_device as transfer_guard_device_to_device
from shardwise.base.overrides import transfer_guard_device_to_host as transfer_guard_device_to_host
from shardwise.base.overrides import transfer_guard_host_to_device as transfer_guard_host_to_device
from shardwise.engine import eager as _eager  # noqa: F401  # pyright: ignore[reportUnusedImport]  # installs the executor of single ops
from shardwise.engine import operators_on_demand as _operators_on_demand
from shardwise.engine.device_put import device_get as device_get
from shardwise.engine.device_put import device_put as device_put
from shardwise.engine.inspection import ShapeDtypeStruct as ShapeDtypeStruct
from shardwise.engine.inspection import typeof as typeof
from shardwise.engine.live import live_arrays as live_arrays
from shardwise.engine.make_array import make_array_from_callback as make_array_from_callback
from shardwise.engine.make_array import make_array_from_process_local_data as make_array_from_process_local_data
from shardwise.engine.make_array import make_array_from_single_device_arrays as make_array_from_single_device_arrays
from shardwise.engine.shards import Shard as Shard
from shardwise.ir import Array as Array
from shardwise.sharding import Device as Device
from shardwise.sharding import NamedSharding as NamedSharding
from shardwise.sharding import context as _context
from shardwise.sharding import default_backend as default_backend
from shardwise.sharding import device_count as device_count
from shardwise.sharding import devices as devices
from shardwise.sharding import host_count as host_count
from shardwise.sharding import host_id as host_id
from shardwise.sharding import host_ids as host_ids
from shardwise.sharding import local_device_count as local_device_count
from shardwise.sharding import local_devices as local_devices
from shardwise.sharding import make_mesh as make_mesh
from shardwise.sharding import process_count as process_count
from shardwise.sharding import process_index as process_index
from shardwise.sharding import process_indices as process_indices
from shardwise.sharding import spec as _spec
from shardwise.transforms.jit.jit import jit as jit
from shardwise.transforms.jit.shared_caches import clear_caches as clear_caches
from shardwise.transforms.manual import explicit as _explicit

__version__ = "0.1.0"

set_mesh = _context.todays_set_mesh

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise import ad_checkpoint as ad_checkpoint
    from shardwise import alias as alias
    from shardwise import api_util as api_util
    from shardwise import core as core
    from shardwise import custom_batching as custom_batching
    from shardwise import custom_derivatives as custom_derivatives
    from shardwise import debug as debug
    from shardwise import distributed as distributed
    from shardwise import dlpack as dlpack
    from shardwise import dtypes as dtypes
    from shardwise import errors as errors
    from shardwise import example_libraries as example_libraries
    from shardwise import experimental as experimental
    from shardwise import export as export
    from shardwise import extend as extend
    from shardwise import ffi as ffi
    from shardwise import flatten_util as flatten_util
    from shardwise import image as image
    from shardwise import interpreters as interpreters
    from shardwise import lax as lax
    from shardwise import lib as lib
    from shardwise import memory as memory
    from shardwise import monitoring as monitoring
    from shardwise import nn as nn
    from shardwise import numpy as numpy
    from shardwise import ops as ops
    from shardwise import plan as plan
    from shardwise import profiler as profiler
    from shardwise import random as random
    from shardwise import ref as ref
    from shardwise import scipy as scipy
    from shardwise import sharding as sharding
    from shardwise import stages as stages
    from shardwise import tree as tree
    from shardwise import tree_util as tree_util
    from shardwise import typing as typing
    from shardwise import version as version
    from shardwise.base.contexts import allow_f16_reductions as allow_f16_reductions
    from shardwise.base.contexts import array_garbage_collection_guard as array_garbage_collection_guard
    from shardwise.base.contexts import auto_pcast as auto_pcast
    from shardwise.base.contexts import debug_key_reuse as debug_key_reuse
    from shardwise.base.contexts import enable_checks as enable_checks
    from shardwise.base.contexts import jax2tf_associative_scan_reductions as jax2tf_associative_scan_reductions
    from shardwise.base.contexts import legacy_prng_key as legacy_prng_key
    from shardwise.base.contexts import make_user_context as make_user_context
    from shardwise.base.contexts import no_execution as no_execution
    from shardwise.base.contexts import remove_size_one_mesh_axis_from_type as remove_size_one_mesh_axis_from_type
    from shardwise.base.contexts import softmax_custom_jvp as softmax_custom_jvp
    from shardwise.base.contexts import spmd_mode as spmd_mode
    from shardwise.base.contexts import thread_guard as thread_guard
    from shardwise.base.overrides import no_tracing as no_tracing
    from shardwise.cli import print_environment_info as print_environment_info
    from shardwise.engine.device_put import copy_to_host_async as copy_to_host_async
    from shardwise.engine.device_put import device_put_replicated as device_put_replicated
    from shardwise.engine.device_put import device_put_sharded as device_put_sharded
    from shardwise.numpy.dynamic_index import ds as ds
    from shardwise.ops.control.callback import pure_callback as pure_callback
    from shardwise.ref import Ref as Ref
    from shardwise.ref import empty_ref as empty_ref
    from shardwise.ref import free_ref as free_ref
    from shardwise.ref import freeze as freeze
    from shardwise.ref import new_ref as new_ref
    from shardwise.sharding.spec import P as P
    from shardwise.transforms.derivatives.autodiff import fwd_and_bwd as fwd_and_bwd
    from shardwise.transforms.derivatives.autodiff import grad as grad
    from shardwise.transforms.derivatives.autodiff import jvp as jvp
    from shardwise.transforms.derivatives.autodiff import linear_transpose as linear_transpose
    from shardwise.transforms.derivatives.autodiff import linearize as linearize
    from shardwise.transforms.derivatives.autodiff import value_and_grad as value_and_grad
    from shardwise.transforms.derivatives.autodiff import vjp as vjp
    from shardwise.transforms.derivatives.checkpoint import checkpoint as checkpoint
    from shardwise.transforms.derivatives.checkpoint import checkpoint_policies as checkpoint_policies
    from shardwise.transforms.derivatives.checkpoint import remat as remat
    from shardwise.transforms.derivatives.custom_derivatives import closure_convert as closure_convert
    from shardwise.transforms.derivatives.custom_derivatives import custom_gradient as custom_gradient
    from shardwise.transforms.derivatives.custom_derivatives import custom_jvp as custom_jvp
    from shardwise.transforms.derivatives.custom_derivatives import custom_vjp as custom_vjp
    from shardwise.transforms.derivatives.jacobians import hessian as hessian
    from shardwise.transforms.derivatives.jacobians import jacfwd as jacfwd
    from shardwise.transforms.derivatives.jacobians import jacobian as jacobian
    from shardwise.transforms.derivatives.jacobians import jacrev as jacrev
    from shardwise.transforms.interpreters.accumulation import ad as ad
    from shardwise.transforms.interpreters.vmap import vmap as vmap
    from shardwise.transforms.jit.jaxpr import eval_shape as eval_shape
    from shardwise.transforms.jit.jaxpr import make_jaxpr as make_jaxpr
    from shardwise.transforms.manual.explicit import reshard as reshard
    from shardwise.transforms.manual.pmap import pmap as pmap
    from shardwise.transforms.manual.shard_map import shard_map as shard_map
    from shardwise.transforms.manual.smap import smap as smap
    from shardwise.transforms.tracing.blocking import block_until_ready as block_until_ready
    from shardwise.transforms.tracing.blocking import effects_barrier as effects_barrier
    from shardwise.transforms.tracing.blocking import ensure_compile_time_eval as ensure_compile_time_eval
    from shardwise.transforms.tracing.naming import named_call as named_call
    from shardwise.transforms.tracing.naming import named_scope as named_scope
    from shardwise.tree_util import tree_map as tree_map

# Faces that are imported when first used, so that `import shardwise` stays quick.
_LAZY_MODULES = frozenset({
    "_src", "ad_checkpoint", "alias", "api_util", "core", "custom_batching", "custom_derivatives", "dlpack", "image", "debug",
    "distributed", "dtypes", "errors", "example_libraries", "experimental", "export", "extend", "ffi", "flatten_util", "interpreters",
    "lax", "lib", "memory", "monitoring", "ref", "version", "nn", "numpy", "profiler", "random", "stages", "scipy", "sharding",
    "tree", "tree_util", "typing", "plan",
})  # fmt: skip
_LAZY_NAMES = {
    **dict.fromkeys(("fwd_and_bwd", "grad", "jvp", "linear_transpose", "linearize", "value_and_grad", "vjp"),
                    "shardwise.transforms.derivatives.autodiff"),
    **dict.fromkeys(("hessian", "jacfwd", "jacobian", "jacrev"), "shardwise.transforms.derivatives.jacobians"),
    "vmap": "shardwise.transforms.interpreters.vmap", "ad": "shardwise.transforms.interpreters.accumulation",
    **dict.fromkeys(("closure_convert", "custom_gradient", "custom_jvp", "custom_vjp"),
                    "shardwise.transforms.derivatives.custom_derivatives"),
    **dict.fromkeys(("checkpoint", "checkpoint_policies", "remat"), "shardwise.transforms.derivatives.checkpoint"),
    "eval_shape": "shardwise.transforms.jit.jaxpr", "make_jaxpr": "shardwise.transforms.jit.jaxpr",
    "pmap": "shardwise.transforms.manual.pmap", "reshard": "shardwise.transforms.manual.explicit",
    "shard_map": "shardwise.transforms.manual.shard_map", "smap": "shardwise.transforms.manual.smap",
    "block_until_ready": "shardwise.transforms.tracing.blocking", "effects_barrier": "shardwise.transforms.tracing.blocking",
    "named_call": "shardwise.transforms.tracing.naming", "named_scope": "shardwise.transforms.tracing.naming",
    "pure_callback": "shardwise.ops.control.callback",
    **dict.fromkeys(("allow_f16_reductions", "array_garbage_collection_guard", "auto_pcast", "debug_key_reuse", "enable_checks",
                     "jax2tf_associative_scan_reductions", "legacy_prng_key", "make_user_context", "no_execution",
                     "remove_size_one_mesh_axis_from_type", "softmax_custom_jvp", "spmd_mode", "thread_guard"), "shardwise.base.contexts"),
    "no_tracing": "shardwise.base.overrides", "ds": "shardwise.numpy.dynamic_index",
    "copy_to_host_async": "shardwise.engine.device_put",
    **dict.fromkeys(("Ref", "empty_ref", "free_ref", "freeze", "new_ref"), "shardwise.ref"),
    "ensure_compile_time_eval": "shardwise.transforms.tracing.blocking",
    "tree_map": "shardwise.tree_util", "print_environment_info": "shardwise.cli",
}  # fmt: skip


# Rooms without public names.
_ROOMS = frozenset({"base", "engine", "ir", "passes", "planner", "runtime", "transforms", "cli"})
_REMOVED_NAMES = frozenset({"device_put_replicated", "device_put_sharded"})


if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name in _LAZY_MODULES:
            return _importlib.import_module(f"shardwise.{name}")
        if name == "P":  # not kept in the module: the dialect may change
            return _spec.TodaysSpec if config.dialect.shardings.spec_is_tuple else _spec.PartitionSpec
        if name in _REMOVED_NAMES:  # as above
            if not config.dialect.functions.keeps_removed:
                raise AttributeError(
                    f"{name} is gone from today's JAX. Use device_put with a NamedSharding of the stacked values. "
                    f"{config.dialect.switch}"
                )
            return getattr(_importlib.import_module("shardwise.engine.device_put"), name)
        if name in _LAZY_NAMES:
            value = getattr(_importlib.import_module(_LAZY_NAMES[name]), name)
            globals()[name] = value
            return value
        raise _no_attribute("shardwise", name)


def __dir__() -> list[str]:
    kept_names: frozenset[str] = _REMOVED_NAMES if config.dialect.functions.keeps_removed else frozenset()
    own = {n for n in globals() if not n.startswith("_")} - _ROOMS
    return sorted({"P", *own, *_LAZY_MODULES - {"_src"}, *_LAZY_NAMES, *kept_names})


_operators_on_demand.install()
_uncaught.install()

# `sharding` also names the switches between modes, which need the floors above it.
for _name in ("reshard", "auto_axes", "explicit_axes"):
    setattr(_sharding, _name, getattr(_explicit, _name))
