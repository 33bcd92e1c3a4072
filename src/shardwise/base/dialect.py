"""The two dialects: one table of the differences between JAX 0.5.3 (`0.5`, also `seed`) and JAX 0.10.2 (`0.10`, also `latest`).

Each line is one difference: a field whose name says what differs, its value in JAX 0.5.3, its value in JAX 0.10. A field holds
the thing itself (a name, a text, an exception class); it is a bool only where behaviour branches. Code reads it when it is
called, as `config.dialect.meshes.set_mesh_is_context`, so that a switch at run time takes effect at once.

To add a difference, add a line to the group that it belongs to. No other code asks which dialect it is, but for the few
places that `tests/base/test_dialect.py` lists.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, TypeVar, dataclass_transform

from shardwise.base.errors import (
    IndivisibleError,
    MissingAxisErrorSeed,
    ShardingNotImplementedErrorSeed,
    ShardingTypeError,
    ShardingTypeErrorSeed,
    ShardingValueErrorSeed,
)
from shardwise.base.lattice import NARROW, STANDARD
from shardwise.base.lazy_dataclasses import dataclass

T = TypeVar("T")
ErrorClass = type[Exception]


def differs(seed: T, latest: T) -> T:
    """A field of the table, by its value in each dialect."""
    new_field: Any = field(metadata={"seed": seed, "latest": latest})
    return new_field


def group(cls: type[T]) -> T:
    """A field that holds a table of its own."""
    return differs(column(cls, "seed"), column(cls, "latest"))


def column(cls: Any, name: str) -> Any:
    """The instance of a table that has the values of one dialect."""
    return cls(**{f.name: f.metadata[name] for f in fields(cls)})


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(differs, group))
def table(cls: type[T]) -> type[T]:
    """Make `cls` a table: a frozen dataclass with one instance per dialect, which compare by identity."""
    return dataclass(frozen=True, slots=True, eq=False)(cls)


@table
class Devices:
    """Devices and their memories."""

    text: str = differs("TFRT_CPU_{}", "cpu:{}")
    """`str(device)`, as a format of the device id."""
    memory_kinds: tuple[str, ...] = differs(("unpinned_host",), ("device", "pinned_host", "unpinned_host"))
    """The memory kinds that a CPU device addresses, the default one first."""
    id_stride: int = differs(131072, 2048)
    """Process `p` numbers its devices from `p * id_stride`."""
    count_may_be_repeated: bool = differs(False, True)
    """Whether `jax_num_cpu_devices` may be set again, once devices exist, to the number there is."""


@table
class Meshes:
    """Meshes, and the mesh in context."""

    make_mesh_axis_type: str = differs("Auto", "Explicit")
    """Name of the `AxisType` that `make_mesh` gives when none is asked for."""
    frozen_error: ErrorClass = differs(RuntimeError, AttributeError)
    """The error of assigning to an attribute of a mesh."""
    shows_device_ids: bool = differs(True, False)
    """Whether `repr(mesh)` shows the ids of the devices; else the sizes of the axes."""
    abstract_names_device: bool = differs(False, True)
    """Whether the abstract mesh of a mesh knows the kind of its devices."""
    entering_warns: bool = differs(False, True)
    """Whether `with mesh:` gives a DeprecationWarning."""
    set_mesh_is_context: bool = differs(False, True)
    """Whether `jax.sharding.set_mesh` returns a context manager; else it returns the mesh that was set before."""
    entered_by: str = differs("use_mesh", "set_mesh")
    """The function by which errors advise to enter a mesh."""
    entered_by_path: str = differs("jax.sharding.use_mesh", "jax.set_mesh")
    """The module in which JAX has that function."""


@table
class Shardings:
    """PartitionSpecs and NamedShardings."""

    spec_is_tuple: bool = differs(True, False)
    """Whether a spec is a tuple, a tuple serves as a spec, and the class can be subclassed."""
    spec_entries_nest: bool = differs(True, False)
    """Whether the tuple of axes that splits one dim may hold further tuples."""
    abstract_memory_kind_checked: bool = differs(False, True)
    """Whether a NamedSharding over an abstract mesh refuses a memory kind that no device has."""


@table
class Types:
    """Types of values, and the mesh axes over which values vary inside shard_map (vma)."""

    show_marks: bool = differs(False, True)
    """Whether types print the axes over which values vary, are unreduced or reduced."""
    str_is_short: bool = differs(False, True)
    """Whether `str` of a type is as short as `~f32[2]`; else it is its repr."""
    tracers_show_values: bool = differs(False, True)
    """Whether `repr(tracer)` shows the values that it holds; else its type and its trace."""
    vma_checked: bool = differs(False, True)
    """Whether branches, carries and collectives must agree in the axes over which their values vary."""
    like_copies_vma: bool = differs(False, True)
    """Whether `zeros_like`, `ones_like` and `full_like` vary over the axes that their argument varies over."""


@table
class Explicit:
    """Explicit mode: shardings in types."""

    ambiguous_error: ErrorClass = differs(ShardingValueErrorSeed, ShardingTypeError)
    """The error of an ambiguous sharding of a result."""
    window_error: ErrorClass = differs(ShardingNotImplementedErrorSeed, ShardingTypeError)
    """The error of a dim of a result that cannot stay split."""
    elementwise_error: ErrorClass = differs(ShardingTypeErrorSeed, ShardingTypeError)
    """The error of elementwise operands with different shardings."""
    sort_keeps_split_dim: bool = differs(True, False)
    """Whether values are sorted along a split dim, their sharding kept; else that is an error."""
    eager_indexing_gathers: bool = differs(True, False)
    """Whether indexing outside of jit makes a split dim whole before it cuts it; else that is an error."""
    broadcast_reshards_full_shapes: bool = differs(False, True)
    """Whether operands that already have the full shape take the common sharding, too, when others broadcast."""
    constraint_asserts_type: bool = differs(False, True)
    """Whether `with_sharding_constraint` over a mesh of Explicit axes asserts the type; else it is refused."""
    reshard_changes_devices: bool = differs(True, False)
    """Whether `reshard` to a NamedSharding moves a value to the devices of another mesh with the same axes."""
    auto_axes_of_auto_is_call: bool = differs(False, True)
    """Whether `auto_axes` over axes that are Auto already only calls the function."""
    vmap_splits_unmapped_values: bool = differs(True, False)
    """Whether arguments that `vmap` does not map may be split over the axes that split the mapped dims."""
    in_sharding_keywords: tuple[str, ...] = differs(("in_sharding", "in_shardings"), ("in_sharding",))
    """Keywords of `explicit_axes`, the one that errors name last."""
    out_sharding_keywords: tuple[str, ...] = differs(("out_sharding", "out_shardings"), ("out_sharding",))
    """Keywords of `auto_axes`, the one that errors name last."""


@table
class Jit:
    """`jit`, the placement of its arguments and results, and ahead-of-time objects."""

    name: str = differs("pjit", "jit")
    """The name of jit in programs and errors."""
    none_replicates: bool = differs(True, False)
    """Whether None in in_shardings and out_shardings means replicated where a mesh is in context; else unspecified."""
    refuses_unconstrained_shardings: bool = differs(False, True)
    """Whether in_shardings and out_shardings refuse UNCONSTRAINED in NamedShardings, too; else only in bare specs."""
    argument_form_text: str = differs("shape", "type")
    """The word of errors for the dtype and shape of an argument."""
    argument_devices_text: str = differs("and device ids", "and with device ids")
    """How errors go on from an argument to its devices."""
    indivisible_error: type[ValueError] = differs(ValueError, IndivisibleError)
    """The error of arguments and results that their sharding does not divide."""
    indivisible_advice: bool = differs(False, True)
    """Whether that error tells the next size that the sharding divides."""
    device_put_has_own_errors: bool = differs(False, True)
    """Whether `device_put` and `reshard` refuse a sharding in words of their own; else in those of jit."""
    uneven_results_whole: bool = differs(True, False)
    """Whether a result with a dim that its mesh axes do not divide lies whole on every device; else only that dim does."""
    donates_equal_bytes: bool = differs(False, True)
    """Whether on one device a donated buffer serves any result of as many bytes; else of the same shape and dtype."""
    custom_partitioning_needs_rule: bool = differs(False, True)
    """Whether functions with custom_partitioning must have a sharding_rule."""
    out_info_is_struct: bool = differs(False, True)
    """Whether `out_info` holds ShapeDtypeStructs; else OutInfos."""
    eval_shape_knows_shardings: bool = differs(False, True)
    """Whether the ShapeDtypeStructs that `eval_shape` gives have the shardings that out_shardings names."""
    compiled_for_others_text: str = differs(
        "Compiled object called with input sharding(s) does not match the sharding(s) the computation was compiled with.",
        "Computation was compiled for input shardings that disagree with the shardings of arguments passed to it.",
    )
    """How a compiled function refuses arguments of other shardings."""


@table
class ShardMap:
    """`shard_map` and `pmap`."""

    check_option: str = differs("check_rep", "check_vma")
    """The option that switches off the check of out_specs."""
    errors_speak_of_vma: bool = differs(False, True)
    """Whether that check tells the axes over which a result varies; else those over which it is not known to be replicated."""
    in_specs_may_be_none: bool = differs(False, True)
    """Whether in_specs may be None as a whole, for arguments that stay as they are."""
    missing_axis_error: ErrorClass = differs(MissingAxisErrorSeed, ValueError)
    """The error of a spec with an axis that the mesh lacks."""
    mesh_must_match_context: bool = differs(False, True)
    """Whether `mesh=` must be the mesh in context where there is one."""
    inputs_match_types: bool = differs(False, True)
    """Whether in_specs hold for typed arguments: refused on Explicit axes where they differ, else resharded."""
    results_wear_out_specs: bool = differs(False, True)
    """Whether a result outside of jit has the spec as written in out_specs even if it lies on the mesh of shard_map."""
    keeps_automatic_splits: bool = differs(False, True)
    """Whether automatic axes go on splitting the results; else these lie as out_specs say."""
    eager_prints_once: bool = differs(False, True)
    """Whether a body that runs outside of jit prints each value once; else once per device."""
    experimental_grad_is_local: bool = differs(True, False)
    """Whether derivatives that a body of `experimental.shard_map` takes are those of each device by itself."""
    pmap_nests: bool = differs(True, False)
    """Whether a pmap may be called inside another one."""
    pmap_results_wear_pmap_sharding: bool = differs(True, False)
    """Whether results of pmap have a PmapSharding; else a NamedSharding on a mesh of one axis."""


@table
class Jaxprs:
    """Programs as text, and to interpreters."""

    bind_params_have_functions: bool = differs(True, False)
    """Whether `Primitive.get_bind_params` returns a list of functions beside the params."""
    psum_of_varying: str = differs("psum2", "psum_invariant")
    """The primitive of a psum whose operand varies over its axes."""
    pvary: str = differs("pbroadcast", "pvary")
    """The primitive that types a value as varying."""
    literal: str = differs("{value}", "{value}:{type}")
    """A constant, as a format."""
    weak_literals_are_short: bool = differs(False, True)
    """Whether a constant of a weak type is the Python number; else what float32 makes of it."""
    longest_inner: int | None = differs(None, 10)
    """How many equations a program within another has at most, if it is not to be written before it, by its name."""
    shared_programs_name_each_other: bool = differs(False, True)
    """Whether programs that are written before the others name those that follow."""
    inner_programs_have_constants: bool = differs(True, False)
    """Whether programs within others show captured values apart from arguments."""
    shard_map_shows_specs: bool = differs(False, True)
    """Whether shard_map shows specs and its manual axes; else axis names by dim and its automatic axes."""
    scan_shows_linear: bool = differs(True, False)
    """Whether a scan shows the params `linear` and `_split_transpose`."""
    reduction_shows_out_sharding: bool = differs(False, True)
    """Whether a reduction shows `out_sharding=None`."""
    eigh_shows_algorithm: bool = differs(False, True)
    """Whether an eigh shows `algorithm=None`."""
    broadcast_shows_all: bool = differs(True, False)
    """Whether a broadcast_in_dim shows its shape, and params that are empty or None."""
    psum_of_varying_shows_groups: bool = differs(True, False)
    """Whether that psum shows `axis_index_groups`, as the other collectives do."""
    joins_are_ops: bool = differs(False, True)
    """Whether `stack`, `unstack` and `tile` are ops of their own."""


@table
class Arrays:
    """Making arrays of parts, and joining those of processes."""

    list_text: str = differs("Sequence (list or tuple)", "list or tuple")
    """The argument type in the error of `make_array_from_single_device_arrays`."""
    local_data_checks_shape: bool = differs(False, True)
    """Whether on one process `make_array_from_process_local_data` refuses a global_shape other than that of the data."""
    struct_checks_spec: bool = differs(False, True)
    """Whether a ShapeDtypeStruct refuses a spec with more entries than it has dims."""
    struct_is_frozen: bool = differs(False, True)
    """Whether the fields of a ShapeDtypeStruct keep the values that it was made with."""
    allgather_needs_tiled: bool = differs(False, True)
    """Whether `process_allgather` takes an array over several processes with `tiled=True` only."""
    broadcast_bools_are_ints: bool = differs(True, False)
    """Whether `broadcast_one_to_all` gives int32 for bool."""
    layout_makes_format: bool = differs(True, False)
    """Whether `Layout` called with a layout, or with a sharding by keyword, makes a Format."""
    checkpoint_driver: str = differs("zarr", "zarr3")
    """The TensorStore driver of an array in a checkpoint."""
    checkpoints_share_store: bool = differs(False, True)
    """Whether the arrays of a folder share one OCDBT store; else each has a folder of its own."""


@table
class Functions:
    """Functions of `lax`, `numpy`, `random` and `scipy`, and transformations."""

    keeps_removed: bool = differs(True, False)
    """Whether names and arguments that JAX 0.10 removed are there; else they raise as unknown ones do."""
    bad_uses_warn: bool = differs(True, False)
    """Whether an array as a dtype, and a `where` that is not bool, give a DeprecationWarning; else a ValueError."""
    lattice_without_x64: str = differs(STANDARD, NARROW)
    """The lattice of type promotion where 64-bit types are off."""
    dot_shape_error: ErrorClass = differs(TypeError, ValueError)
    """The error of `lax.dot` for shapes that do not fit."""
    callback_vmap_method: str | None = differs("sequential", None)
    """How vmap calls a `pure_callback` that does not say how; None: it refuses."""
    linearized_tree_error: ErrorClass = differs(ValueError, TypeError)
    """The error of a linearized function for tangents of another structure."""
    linearized_dtype_error: ErrorClass = differs(TypeError, ValueError)
    """Its error for tangents of another dtype."""
    vjp_is_object: bool = differs(False, True)
    """Whether `vjp` returns a VJP, whose residuals can be replaced; else a Partial."""
    argpartition_keeps_weak_type: bool = differs(False, True)
    """Whether `argpartition` gives weakly typed indices for a weakly typed operand."""
    block_diag_of_one_is_weak: bool = differs(True, False)
    """Whether `scipy.linalg.block_diag` of one weakly typed block is weakly typed."""
    round_of_bools_error: ErrorClass = differs(TypeError, ValueError)
    """The error of `numpy.round` of bools."""
    polyval_promotes_integers: bool = differs(True, False)
    """Whether `polyval` of integers gives floats."""
    complex_scalars_become_real: bool = differs(True, False)
    """Whether `convert_element_type` and `full` cast a Python complex number to a real dtype, with a warning; else that raises."""
    lognormal_promotes: bool = differs(True, False)
    """Whether `random.lognormal` promotes its dtype with that of sigma, float32 by default."""
    randint_samples_wide: bool = differs(False, True)
    """Whether `random.randint` samples dtypes of less than 32 bits as int32, which makes the bias small."""
    complex_value_errors: frozenset[str] = differs(
        frozenset(),
        frozenset("beta betainc dawsn entr exp1 expi expn gammasgn hyp1f1 kl_div poch rel_entr sici".split()),
    )
    """Functions of `scipy.special` that raise ValueError, not TypeError, for complex numbers."""


@table
class Dialect:
    """How one release of JAX behaves: its texts, arguments, defaults and errors."""

    name: str = differs("0.5", "0.10")
    jax_version: str = differs("0.5.3", "0.10.2")
    """The release of JAX whose behaviour this dialect follows."""
    jaxlib_classes: str = differs("xla_extension", "_jax")
    """The module of `jaxlib` that defines its classes."""
    jaxlib_revision: tuple[str, int] = differs(("xla_extension_version", 320), ("jaxlib_extension_version", 467))
    """The name and number by which libraries ask what `jaxlib` can do."""
    switch: str = differs(
        "JAX 0.10 takes this: shardwise.config.update('shardwise_dialect', '0.10') before the first array, "
        "SHARDWISE_DIALECT=0.10 or `shardwise run --dialect 0.10` choose its behaviour.",
        "JAX 0.5 takes this: shardwise.config.update('shardwise_dialect', '0.5') before the first array, "
        "SHARDWISE_DIALECT=0.5 or `shardwise run --dialect 0.5` choose its behaviour.",
    )
    """The advice of errors that the other dialect would not give."""
    devices: Devices = group(Devices)
    meshes: Meshes = group(Meshes)
    shardings: Shardings = group(Shardings)
    types: Types = group(Types)
    explicit: Explicit = group(Explicit)
    jit: Jit = group(Jit)
    shard_map: ShardMap = group(ShardMap)
    jaxprs: Jaxprs = group(Jaxprs)
    arrays: Arrays = group(Arrays)
    functions: Functions = group(Functions)


SEED: Dialect = column(Dialect, "seed")
LATEST: Dialect = column(Dialect, "latest")
DIALECTS = {dialect.name: dialect for dialect in (SEED, LATEST)}
ALIASES = {"seed": SEED.name, "latest": LATEST.name}
"""Names of before, which stay."""
