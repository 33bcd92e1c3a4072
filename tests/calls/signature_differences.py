"""Where the names, parameters and defaults of public functions differ from JAX's, and why: the only list of it."""

from __future__ import annotations

_INSIDE = "an object that JAX makes, not users"
_MORE = "takes more than JAX"
_DEFAULT = "no argument means the same"
# What differs, and why. The first pattern that fits a path and what was found there tells.
DIFFERENT = [
    (r"(ref\.)?(Ref|AbstractRef|Shard)|stages\.(Compiled|Lowered|Traced)|experimental\.checkify\.Error.*|.*\.tree_unflatten", _INSIDE),
    (r".*\.(lower|compile|print): lacks (_private_parameters|_use_logging|device_assignment)", "an option of JAX's inside"),
    (r"(sharding\.)?\w+\.update: adds .*", "JAX's **kwargs, by their names"),
    (r"numpy\.set_printoptions: adds .*", "NumPy's own names instead of *args"),
    (r"seed ad_checkpoint\.(remat|checkpoint): adds (static_argnames|concrete)", "as checkpoint of today"),
    (r"ShapeDtypeStruct: adds .*", _MORE),
    (r"ref\.(set|swap|addupdate): default of \w+|sharding\.Abstract(Device|Mesh): default of \w+", _MORE),
    (r".*stax.*: default of (W|b)_init|test_util\.check_(jvp|vjp): default of eps", _DEFAULT),
    (r".*def_partition: default of \w+_factors", _DEFAULT),
    (r"lax\.dot: .*|make_mesh: .*", "what stands there by position differs between the eras: both are understood"),
    (r"seed jit: lacks fun|seed numpy\.(maximum|minimum): positions", "by position only, as of today"),
    (r"seed lax\.\w+: kind of out_sharding", "by keyword only, as of today"),
    (r"\w+: default of new_val|sharding\.\w+: default of new_val", "JAX raises without it, too"),
    (r".*\.apply_primitive: lacks prim", "by position only: params of primitives may have that name"),
    (r"seed core\.(find_top_trace: lacks _|gensym: lacks suffix)", "as of today"),
    (r".*GSPMDSharding\.get_replicated: lacks device_assignment", "its name is not that of a call by position"),
    (r"sharding\.\w+_axes: stars", "they take the plurals of 0.5: out_shardings"),
    (r"seed .*: lacks (initial|newshape|interpolation)", "JAX 0.5.3 raises where it is given, too"),
    (r"seed experimental\.(pjit\.pjit|shard_map\.shard_map): .*", "takes also what JAX 0.10 takes"),
    (r"seed experimental\.(layout\.(Layout|DeviceLocalLayout)|colocated_python\.colocated_cpu_devices): lacks .*", "as of today"),
    (r"seed experimental\.layout\.with_layout_constraint: .*", "as of today"),
    (r"(core|.*hijax)\.(AbstractValue|ShapedArray|AbstractRef): .*", "types say mesh and spec"),
    (r"extend\.core\.(Literal|Var|JaxprEqn): .*|.*partial_eval\.PartialVal: .*", _INSIDE),
    (r"interpreters\.\w+\.(JVP|Batch|DynamicJaxpr)Trac\w+: .*|extend\.linear_util\.WrappedFun: .*|seed .*partial_eval\.Jaxpr: .*", _INSIDE),
    (r"interpreters\.mlir\.LoweringRuleContext: .*", "a name for annotations alone"),
    (r"core\.get_opaque_trace_state: default of convention", _MORE),
    (r"extend\.core\.ClosedJaxpr: default of .*|api_util\.debug_info: .*|.*new_jaxpr_eqn: .*", _MORE),
    (r"extend\.core\.(find_top_trace|jaxpr_as_fun): .*|seed core\.call: .*", "its name is not that of a call by position"),
    (r"extend\.linear_util\.transformation\w*: lacks gen", "used as a decorator, as JAX's is through partial"),
    (r"interpreters\.batching\.(bdim_at_front|broadcast): lacks mesh_axis", "the mapped dim's layout is found by propagation"),
    (r"interpreters\.partial_eval\.trace_to_jaxpr_dynamic: .*", "options are refused by name"),
    (r"api_util\.(argnums_partial|donation_vector|flatten_axes): .*", "their options choose between forms of JAX's inside"),
    (r"experimental\.sparse\.bc(oo|sr)_\w+: (lacks (out_)?sharding|stars)", "the result is not split"),
    (r"experimental\.sparse\.JAXSparse: lacks (args|shape)", "each format is made of its own parts"),
    (r"experimental\.sparse\.(BCOO\.\w+: (adds (dtype|axis)|stars)|(empty|eye): default of index_dtype)", "says what *args hide"),
    (r"experimental\.sparse\.random_bcoo: default of dtype", "None is that type"),
    (r"seed lax\.optimization_barrier: .*", "by position only, as of today"),
]  # fmt: skip
LACKING = [
    (r"experimental\.array_serialization\.serialization\.(AsyncManager|BarrierTimeoutError|Format|\w*async_\w+|is_\w+|run_\w+)", _INSIDE),
    (r"experimental\.(jet|ode|shard_map|multihost_utils|pjit)\.|example_libraries\.", "what JAX's module imports or keeps for itself"),
    (r"experimental\.(EArray|cur_qdd|primal_tangent_dtype|layout\.|compute_on\.|colocated_python\.)", _INSIDE),
    (r"(ref\.)?AbstractRef\.|(ref\.)?Ref\.|Device\.|tree_util\.(PyTreeDef|build_tree)", _INSIDE),
    (r"stages\.(Compiled\.call|Lowered\.from_flat_info)", _INSIDE),
    (r"sharding\.(ManualAxisType|make_single_device_sharding)|debug\.\w*Effect|ad_checkpoint\.Offloadable", _INSIDE),
    (r"custom_derivatives\.custom_vjp_primal_tree_values|ds$|errors\.SimplifiedTraceback", _INSIDE),
    (r"profiler\.(Profile|register_subprocess)|profiler\.\w*TraceAnnotation\.", "profiles are Chrome traces"),
    (r"lax\.(RandomAlgorithm|psend|precv|infeed|outfeed)$", "the page lists them"),
    (r"enable_custom_vjp_by_custom_transpose", "an option without effect"),
]  # fmt: skip

# What is not there, by module: why, and the names.
NOT_BUILT = {
    "core": (
        "names of what JAX 0.10 took away, or types, traces and effects of its inside",
        """
        AbstractToken CallPrimitive DShapedArray JaxprPpContext JaxprPpSettings TraceTag UnshapedArray call_impl
        concretization_function_error is_constant_shape mapped_aval max_dim min_dim set_current_trace take_current_trace
        traverse_jaxpr_params unmapped_aval
        """,
    ),
    "experimental.hijax": (
        "types of users load and cannot be used: the page says so",
        """
        HiPspec TransformedRef VJPHiPrimitive
        """,
    ),
    "experimental.sparse": (
        "transforms of sparse formats that the page does not name",
        """
        CuSparseEfficiencyWarning SparseEfficiencyError SparseEfficiencyWarning
        SparseTracer
        """,
    ),
    "experimental.sparse.BCOO": (
        "trees take it as they take any class",
        """
        tree_flatten tree_unflatten
        """,
    ),
    "extend.core": (
        "types and checks of its inside: programs are verified where jax_enable_checks is set",
        """
        AbstractToken CallPrimitive call_impl check_jaxpr
        """,
    ),
    "interpreters.ad": (
        "how JAX differentiates inside; jvp, vjp and linearize are what users call",
        """
        add_jaxvals add_tangents backward_pass backward_pass_internal bilinear_transpose call_transpose
        closed_backward_pass defbilinear defjvp_zero get_primitive_transpose jvp jvp_jaxpr linear_jvp linear_transpose
        linear_transpose2 linearize map_transpose rearrange_binders standard_jvp standard_jvp2 unpair_pval vjp
        zero_jvp zeros_like_aval
        """,
    ),
    "interpreters.batching": (
        "how JAX batches inside; vmap and custom_vmap are what users call",
        """
        IndexedAxisSize Jumble JumbleAxis JumbleTy RaggedAxis Zero ZeroIfMapped batch batch_custom_vjp_bwd batch_jaxpr
        batch_jaxpr2 batch_jaxpr_axes broadcast_batcher defreducer from_elt make_iota matchaxis
        reducer_batcher to_elt vectorized_batcher vtile
        """,
    ),
    "interpreters.mlir": (
        "there is no MLIR: the page of differences says so",
        """
        ConstantHandler LoweringParameters LoweringResult LoweringRule Mesh ModuleContext
        ReplicaAxisContext SPMDAxisContext ShapePolyLoweringState ShardingContext Token TokenSet Value aval_to_ir_type
        aval_to_ir_types core_call_lowering custom_call dense_bool_array dense_bool_elements dense_int_array
        dense_int_elements dtype_to_ir_type emit_python_callback flatten_ir_types flatten_ir_values
        flatten_lowering_ir_args i32_attr i64_attr ir_attribute ir_constant ir_constants jaxpr_subcomp
        lower_jaxpr_to_fun lower_jaxpr_to_module make_ir_context merge_mlir_modules module_to_bytecode
        module_to_string register_constant_handler shape_tensor unflatten_ir_values_like_types
        xla_computation_to_mlir_module
        """,
    ),
    "interpreters.partial_eval": (
        "how JAX evaluates programs in part; linearize and checkpoint are what users call",
        """
        BoundedAxisSize ConstVar DynamicJaxprTrace FreeVar JaxprEqnRecipe JaxprStackFrame
        JaxprTrace JaxprTracer LambdaBinding TracerAsName abstract_eval_fun call_padding_rule
        call_partial_eval_custom_rule close_jaxpr closed_call_partial_eval_custom_rule convert_constvars_jaxpr
        convert_envvars_to_constvars convert_invars_to_constvars dce_jaxpr_call_rule dce_jaxpr_closed_call_rule
        dce_jaxpr_consts def_trivial_padding has_effects infer_lambda_input_type instantiate_const_at
        make_jaxpr_effects move_binders_to_back move_binders_to_front new_eqn_recipe pad_jaxpr
        partial_eval_jaxpr_custom partial_eval_jaxpr_custom_rule_not_implemented partial_eval_jaxpr_nounits
        partition_pvals recipe_to_eqn trace_to_jaxpr_dynamic2 tracers_to_jaxpr trivial_ctx
        """,
    ),
    "interpreters.pxla": (
        "how JAX hands programs to XLA",
        """
        MapTracer MeshComputation MeshExecutable PmapExecutable are_op_shardings_equal array_mapping_to_axis_resources
        create_compile_options global_aval_to_result_handler global_avals_to_results_handler is_op_sharding_replicated
        op_sharding_to_indices parallel_callable shard_args spec_to_indices
        """,
    ),
    "interpreters.xla": (
        "how JAX hands programs to XLA",
        """
        Backend canonicalize_dtype
        """,
    ),
}
