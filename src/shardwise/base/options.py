"""The table of options: name, default, accepted values, environment variables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TRUE = {"y", "yes", "t", "true", "on", "1"}
_FALSE = {"n", "no", "f", "false", "off", "0"}

_TRANSFER_GUARD = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")

_PRECISIONS = (
    "default",
    "high",
    "highest",
    "bfloat16",
    "tensorfloat32",
    "float32",
    "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM",
    "ANY_F8_ANY_F8_ANY",
    "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16",
    "F16_F16_F32",
    "BF16_BF16_BF16",
    "BF16_BF16_F32",
    "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9",
    "TF32_TF32_F32",
    "TF32_TF32_F32_X3",
    "F32_F32_F32",
    "F64_F64_F64",
)


def from_text(name: str, text: str, default: Any) -> Any:
    """Read an option's value from the environment or the command line, where everything is text."""
    if isinstance(default, bool):
        lowered = text.strip().lower()
        if lowered in _TRUE:
            return True
        if lowered in _FALSE:
            return False
        raise ValueError(f"{name} is a switch: give one of true/false, yes/no, on/off, 1/0, not {text!r}.")
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{name} takes an integer, not {text!r}.") from None
    return text


def _switch(name: str, value: Any) -> bool:
    if value is True or value is False:
        return value
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} is a switch: it takes True or False, not {value!r} of type {type(value).__name__}.")


def _choice(*choices: str, optional: bool = False) -> Callable[[str, Any], str | None]:
    def parse(name: str, value: Any) -> str | None:
        if (optional and value is None) or (isinstance(value, str) and value in choices):
            return value
        expected = ("None or " if optional else "") + f"one of {list(choices)}"
        raise ValueError(f"{name} takes {expected}; got {value!r} of type {type(value).__name__}.")

    return parse


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} takes an integer, not {value!r} of type {type(value).__name__}.")
    return value.__index__()


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} takes text or None, not {value!r} of type {type(value).__name__}.")
    return value


def _new_array_type(name: str, value: Any) -> bool:
    if not _switch(name, value):
        raise ValueError(
            f"{name} cannot be turned off: DeviceArray, ShardedDeviceArray and GlobalDeviceArray are gone and "
            "jax.Array is the one array type. Remove the setting (or the environment variable JAX_ARRAY)."
        )
    return True


def _partitionable(name: str, value: Any) -> bool:
    if not _switch(name, value):
        warnings.warn(
            f"{name}=False is not available: random bits never depend on the sharding here, as with True.",
            UserWarning,
            stacklevel=4,
        )
    return True


def _anything(name: str, value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Option:
    """One row of the table.

    Attributes:
        name: as given to `config.update`.
        default: the value when nobody sets one; its type says how text is read.
        parse: `(name, value) -> value`, raising for what the option does not take.
        traced: whether a change makes `jit` trace again.
        aliases: further environment variables that win over the upper-cased name.
    """

    name: str
    default: Any
    parse: Callable[[str, Any], Any] = _switch
    traced: bool = True
    aliases: tuple[str, ...] = ()

    @property
    def environment(self) -> tuple[str, ...]:
        """Environment variables that set the option, the strongest first."""
        return (*self.aliases, self.name.upper())


_guard = _choice(*_TRANSFER_GUARD, optional=True)

OPTIONS = (
    Option("shardwise_dialect", "seed", _choice("seed", "latest")),
    Option("shardwise_on_reshard", "allow", _choice("allow", "raise")),
    Option("shardwise_stepped", False),
    Option("shardwise_check_replicas", True),  # whether processes compare host values that must be equal on all of them
    # whether processes of one node exchange data through shared memory, when their links are made
    Option("shardwise_shared_memory", True, traced=False),
    Option("shardwise_fused", "auto", _choice("auto", "off")),
    # compiled kernels on disk: whether, and in which folder (None: JAX's, or the user's cache folder)
    Option("shardwise_cache", True, traced=False),
    Option("shardwise_cache_dir", None, _text, traced=False),
    Option("jax_enable_compilation_cache", True, traced=False),
    Option("jax_compilation_cache_dir", None, _text, traced=False),
    Option("shardwise_llvm", True, traced=False),  # off: as if llvmlite were missing
    Option("shardwise_blas", "auto", _choice("auto", "numpy"), traced=False),  # numpy: by NumPy's library alone
    Option("jax_num_cpu_devices", -1, _integer, traced=False, aliases=("SHARDWISE_NUM_CPU_DEVICES",)),
    Option("jax_platforms", None, _text, traced=False),
    Option("jax_platform_name", None, _text, traced=False),
    Option("jax_default_device", None, _anything),
    Option("jax_array", True, _new_array_type, traced=False),
    Option("jax_enable_x64", False),
    Option("jax_numpy_dtype_promotion", "standard", _choice("standard", "strict")),
    Option("jax_numpy_rank_promotion", "allow", _choice("allow", "warn", "raise")),
    Option("jax_default_matmul_precision", None, _choice(*_PRECISIONS, optional=True)),
    Option("jax_disable_jit", False),
    Option("jax_debug_nans", False),
    Option("jax_debug_infs", False),
    Option("jax_log_compiles", False, traced=False),
    Option("jax_explain_cache_misses", False, traced=False),
    Option("jax_check_tracer_leaks", False),
    Option("jax_transfer_guard", None, _guard, traced=False),
    Option("jax_transfer_guard_host_to_device", None, _guard),
    Option("jax_transfer_guard_device_to_device", None, _guard),
    Option("jax_transfer_guard_device_to_host", None, _guard),
    Option("jax_threefry_partitionable", True, _partitionable, traced=False),
    Option("jax_default_prng_impl", "threefry2x32", _choice("threefry2x32", "rbg", "unsafe_rbg")),
    Option("jax_enable_custom_prng", False),
    Option(
        "jax_traceback_filtering",
        "auto",
        _choice("auto", "off", "tracebackhide", "remove_frames", "quiet_remove_frames"),
        traced=False,
    ),
    Option("jax_no_tracing", False, traced=False),
    Option("jax_enable_checks", False, traced=False),  # programs are verified in any case
)

_KERNELS = "compiled kernels are small: they are kept on disk whatever they took, and nothing is ever dropped for them."
_XLA = "it steers XLA, which is not here."
_GPU = "there are no GPUs here."
_TRACING = "there is one way to trace and to differentiate here."

# Options of JAX's that are accepted and kept, and change nothing: (default, why).
NO_EFFECT: dict[str, tuple[Any, str]] = {
    "jax_persistent_cache_min_compile_time_secs": (1.0, _KERNELS),
    "jax_persistent_cache_min_entry_size_bytes": (0, _KERNELS),
    "jax_persistent_cache_enable_xla_caches": ("", _KERNELS),
    "jax_compilation_cache_max_size": (-1, _KERNELS),
    "jax_raise_persistent_cache_errors": (False, _KERNELS),
    "jax_use_shardy_partitioner": (True, "there is one propagation engine, and it follows Shardy."),
    "jax_cpu_collectives_implementation": (None, "collectives between processes always run on MPI."),
    "jax_cpu_enable_async_dispatch": (True, "programs run in the calling thread."),
    "jax_distributed_debug": (False, "what processes send is counted by debug.count_traffic."),
    "jax_array_garbage_collection_guard": (None, "arrays are freed when the last reference to them goes."),
    "jax_thread_guard": (False, "threads may call what they like."),
    "jax_pmap_shmap_merge": (True, "pmap is written on shard_map."),
    "jax_spmd_mode": ("allow_jit", "arrays over several processes take part in any computation."),
    "jax_include_full_tracebacks_in_locations": (True, "equations know the user's line."),
    "jax_logging_level": ("NOTSET", "messages go to the logger 'shardwise'; set its level."),
    "jax_debug_log_modules": ("", "messages go to the logger 'shardwise'; set its level."),
    "jax_legacy_prng_key": ("allow", "raw uint32 keys are accepted everywhere."),
    "jax_debug_key_reuse": (False, "reuse of keys is not checked."),
    "jax_softmax_custom_jvp": (True, "softmax has one derivative."),
    "jax_serialization_version": (0, "nothing is serialized."),
    "jax_default_dtype_bits": ("64", "jax_enable_x64 decides."),
    "jax_custom_vjp_disable_shape_check": (False, "cotangents of rules always have the shapes of the arguments."),
    **dict.fromkeys(("jax_optimization_level", "jax_memory_fitting_level"), ("UNKNOWN", _XLA)),
    **dict.fromkeys(("jax_exec_time_optimization_effort", "jax_memory_fitting_effort"), (0.0, _XLA)),
    **dict.fromkeys(("jax_hlo_source_file_canonicalization_regex", "jax_dump_ir_to", "jax_xla_backend",
                     "jax_pjrt_client_create_options"), (None, _XLA)),
    **dict.fromkeys(("jax_enable_pgle", "jax_disable_most_optimizations"), (False, _XLA)),
    **dict.fromkeys(("jax_pgle_profiling_runs", "jax_xla_profile_version", "jax_captured_constants_report_frames",
                     "jax_captured_constants_warn_bytes"), (0, _XLA)),
    "jax_compiler_enable_remat_pass": (True, _XLA),
    **dict.fromkeys(("jax_bcoo_cusparse_lowering", "jax_threefry_gpu_kernel_lowering"), (False, _GPU)),
    **dict.fromkeys(("jax_cuda_visible_devices", "jax_rocm_visible_devices"), ("all", _GPU)),
    "jax_use_magma": ("auto", _GPU),
    **dict.fromkeys(("jax_use_direct_linearize", "jax_eager_pmap", "jax_mutable_array_checks"), (True, _TRACING)),
    **dict.fromkeys(("jax_dynamic_shapes", "jax_data_dependent_tracing_fallback", "jax_disable_bwd_checks",
                     "jax_enable_custom_vjp_by_custom_transpose", "jax_remove_size_one_mesh_axis_from_type",
                     "jax_log_checkpoint_residuals", "jax_check_static_indices", "jax_refs_to_pins"), (False, _TRACING)),
}  # fmt: skip
OPTIONS += tuple(Option(name, default, _anything, traced=False) for name, (default, _) in NO_EFFECT.items())
