"""Options of JAX that configure parts which shardwise does not have.

Two tables. `NO_EFFECT`: nothing in a program's results or errors depends on the option, so any value is accepted and kept.
`ONE_VALUE`: another value would change results or errors, and only the default is there; others are refused with the way out.
Each row holds the default and the reason.
"""

from __future__ import annotations

from typing import Any, Final

_KERNELS = "compiled kernels are small: they are kept on disk whatever they took, and nothing is dropped for them"
_XLA = "it steers XLA, which is not here"
_GPU = "it steers GPUs and TPUs, and there are none here"
_CPU_ONLY = "the devices are CPUs; leave the option out"
_EXPORT = "exported functions are bytes of our own form, not StableHLO"
_PALLAS = (
    "kernels of pallas are interpreted; nothing compiles them, and memory that is not written yet is always poisoned"
)
_TRACING = "there is one way to trace and to differentiate, and it gives what both ways of JAX's give"
_NETWORK = "processes exchange data through MPI and shared memory"
_PRINTED_FORM = "it changes how JAX prints, not what programs do"

NO_EFFECT: Final[dict[str, tuple[Any, str]]] = {
    # where compiled programs are kept
    "jax_persistent_cache_min_compile_time_secs": (1.0, _KERNELS),
    "jax_persistent_cache_min_entry_size_bytes": (0, _KERNELS),
    "jax_persistent_cache_enable_xla_caches": ("xla_gpu_per_fusion_autotune_cache_dir", _KERNELS),
    "jax_compilation_cache_max_size": (-1, _KERNELS),
    "jax_compilation_cache_check_contents": (False, _KERNELS),
    "jax_compilation_cache_include_metadata_in_key": (False, _KERNELS),
    "jax_compilation_cache_expect_pgle": (False, _KERNELS),
    "jax_raise_persistent_cache_errors": (False, _KERNELS),
    "jax_remove_custom_partitioning_ptr_from_cache_key": (False, _KERNELS),
    "jax_share_binary_between_hosts": (False, _KERNELS),
    "jax_share_binary_between_hosts_timeout_ms": (1200000, _KERNELS),
    # XLA
    "jax_use_shardy_partitioner": (True, "there is one propagation engine, and it follows Shardy"),
    "jax_cpu_enable_async_dispatch": (True, "programs run in the calling thread"),
    "eager_constant_folding": (False, _XLA),
    "jax_compiler_detailed_logging_min_ops": (10, _XLA),
    "jax_compiler_enable_remat_pass": (True, _XLA),
    "jax_disable_most_optimizations": (False, _XLA),
    "jax_dump_ir_modes": ("stablehlo", _XLA),
    "jax_dump_ir_to": ("", _XLA),
    "jax_embedded_constants_max_bytes": (32, _XLA),
    "jax_enable_pgle": (False, _XLA),
    "jax_exec_time_optimization_effort": (0.0, _XLA),
    "jax_hlo_source_file_canonicalization_regex": (None, _XLA),
    "jax_include_debug_info_in_dumps": (True, _XLA),
    "jax_include_full_tracebacks_in_locations": (True, _XLA),
    "jax_memory_fitting_effort": (0.0, _XLA),
    "jax_memory_fitting_level": ("O2", _XLA),
    "jax_optimization_level": ("UNKNOWN", _XLA),
    "jax_pgle_aggregation_percentile": (90, _XLA),
    "jax_pgle_profiling_runs": (3, _XLA),
    "jax_pjrt_client_create_options": (None, _XLA),
    "jax_remat_opt_barrier": (True, _XLA),
    "jax_send_traceback_to_runtime": ("off", _XLA),
    "jax_traceback_in_locations_limit": (100, _XLA),
    "jax_xla_backend": ("", _XLA),
    "jax_xla_profile_version": (0, _XLA),
    # other kinds of devices
    "jax_bcoo_cusparse_lowering": (False, _GPU),
    "jax_cuda_visible_devices": ("all", _GPU),
    "jax_mosaic_allow_hlo": (False, _GPU),
    "jax_oneapi_visible_devices": ("all", _GPU),
    "jax_ragged_dot_use_gpu_pallas_triton_lowering": (False, _GPU),
    "jax_ragged_dot_use_ragged_dot_instruction": (True, _GPU),
    "jax_rocm_visible_devices": ("all", _GPU),
    "jax_threefry_gpu_kernel_lowering": (False, _GPU),
    "jax_use_magma": ("auto", _GPU),
    "jax_transfer_guard_device_to_host": (None, "reading an array of a CPU device is no transfer; JAX's CPU devices let it pass, too"),
    # parts of JAX that shardwise lacks
    "jax2tf_associative_scan_reductions": (False, "there is no jax2tf"),
    "jax2tf_default_native_serialization": (True, "there is no jax2tf"),
    "jax_export_calling_convention_version": (10, _EXPORT),
    "jax_export_ignore_forward_compatibility": (False, _EXPORT),
    "jax_serialization_version": (0, _EXPORT),
    "jax_pallas_enable_debug_checks": (False, _PALLAS),
    "jax_pallas_poison_buffers": (False, _PALLAS),
    "jax_pallas_use_mosaic_gpu": (True, _PALLAS),
    "jax_pallas_verbose_errors": (False, _PALLAS),
    "jax_use_emit_pipeline_primitive": (False, _PALLAS),
    # processes
    "jax_check_proxy_envs": (True, _NETWORK),
    "jax_cpu_collectives_implementation": ("gloo", _NETWORK),
    "jax_cpu_enable_gloo_collectives": (False, _NETWORK),
    "jax_cpu_get_global_topology_timeout_minutes": (5, _NETWORK),
    "jax_cpu_get_local_topology_timeout_minutes": (2, _NETWORK),
    "jax_cross_host_transfer_socket_address": ("", _NETWORK),
    "jax_cross_host_transfer_timeout_seconds": (None, _NETWORK),
    "jax_cross_host_transfer_transfer_size": (None, _NETWORK),
    "jax_cross_host_transport_addresses": ("", _NETWORK),
    "jax_force_dcn_cross_host_transfers": (False, _NETWORK),
    "jax_debug_leaked_clients_on_clear_backends": (False, "the devices stay as long as the process"),
    "jax_distributed_debug": (False, "debug.count_traffic counts what processes send"),
    "jax_enable_preemption_service": (True, "there is no coordination service besides MPI's launcher"),
    "jax_spmd_mode": ("allow_jit", "JAX 0.5.3 itself does not read it: arrays over several processes take part in any computation"),
    # tracing, differentiating, printing
    "jax_captured_constants_report_frames": (0, "arrays that a function closes over are passed to it, not copied into the program"),
    "jax_captured_constants_warn_bytes": (2000000000, "arrays that a function closes over are passed to it, not copied into the program"),
    "jax_custom_vjp3": (False, _TRACING),
    "jax_eager_pmap": (True, _TRACING),
    "jax_enable_custom_vjp_by_custom_transpose": (False, _TRACING),
    "jax_pmap_shmap_merge": (False, _TRACING),
    "jax_refs_to_pins": (False, _TRACING),
    "jax_remat3": (False, _TRACING),
    "jax_scan3": (False, _TRACING),
    "jax_softmax_custom_jvp": (False, _TRACING),
    "jax_use_direct_linearize": (True, _TRACING),
    "jax_use_simplified_jaxpr_constants": (False, _TRACING),
    "jax_log_checkpoint_residuals": (False, "ad_checkpoint.print_saved_residuals prints them"),
    "jax_pprint_use_color": (True, _PRINTED_FORM),
    "jax_source_url_schema": (None, _PRINTED_FORM),
    "jax_tracer_error_num_traceback_frames": (5, _PRINTED_FORM),
}  # fmt: skip

ONE_VALUE: Final[dict[str, tuple[Any, str]]] = {
    "check_vma": (False, "pass check_vma to shard_map"),
    "jax_array_garbage_collection_guard": (None, "arrays are freed when the last reference to them goes; watch cycles with the gc module"),
    "jax_auto_pcast": (True, "values become varying where an op needs it; write lax.pcast where you want to see it"),
    "jax_backend_target": ("", _CPU_ONLY),
    "jax_custom_vjp_disable_shape_check": (False, "cotangents have the shapes of the arguments; let the rule return such"),
    "jax_data_dependent_tracing_fallback": (False, "use lax.cond and lax.while_loop, or disable_jit"),
    "jax_default_dtype_bits": ("64", "jax_enable_x64 decides; name narrower dtypes where you want them"),
    "jax_disable_bwd_checks": (False, "cotangents have the types of the arguments; let the rule return such"),
    "jax_disable_vmap_shmap_error": (False, "name the mapped axis with spmd_axis_name, or map inside of the shard_map"),
    "jax_dynamic_shapes": (False, "shapes are static; pad to a size that is known"),
    "jax_enable_empty_arrays": (False, "every array has shards; leave out what holds nothing"),
    "jax_enable_recoverability": (False, "a process that ends in an error ends the job; begin again from a checkpoint"),
    "jax_error_checking_behavior_divide": ("ignore", "use experimental.checkify with div_checks"),
    "jax_error_checking_behavior_nan": ("ignore", "use debug_nans, or experimental.checkify with nan_checks"),
    "jax_error_checking_behavior_oob": ("ignore", "use experimental.checkify with index_checks"),
    "jax_experimental_unsafe_xla_runtime_errors": (False, "wrap the function in checkify.checkify and call err.throw()"),
    "jax_mock_gpu_topology": ("", "virtual devices are CPUs; ask for them with jax_num_cpu_devices"),
    "jax_mutable_array_checks": (True, "references are always checked; pass each one once"),
    "jax_pmap_no_rank_reduction": (True, "shards of pmap keep the mapped dim, with size 1; squeeze them"),
    "jax_sort_devices_by_process_index": (True, "devices are in the order of their processes; permute jax.devices() for another"),
    "jax_varying_axes_in_types": (False, "use shard_map with check_vma under the dialect 0.10"),
    "mock_num_gpu_processes": (0, "virtual devices are CPUs; ask for them with jax_num_cpu_devices"),
}  # fmt: skip
