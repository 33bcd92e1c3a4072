"""`shard_map`: run a function once per device on its own block, with collectives written by hand.

In: a function of blocks, a mesh, specs. The body is traced to a per-device Program, which one equation holds (`shard_map_op`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, overload

from shardwise.base import config
from shardwise.base.config import TODAY
from shardwise.base.dialect import ShardMap as Rules
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes
from shardwise.base.signatures import P, R
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.engine.array import ArrayImpl
from shardwise.engine.replicas import under_signature
from shardwise.engine.signature import signature
from shardwise.ir import Array, ShapedArray, bind, is_eager, trace_program
from shardwise.ir.axis_scope import LOCAL_DERIVATIVES, PRINTS_ONCE
from shardwise.ir.reference_arguments import check_distinct
from shardwise.ir.references import (
    ProxiedReferences,
    Reference,
    ReferenceView,
    closed_views,
    is_reference,
    open_views,
    over_state,
    with_references,
)
from shardwise.ops.rules.convert import as_array
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, get_abstract_mesh, get_concrete_mesh
from shardwise.transforms.manual import shard_map_errors as errors
from shardwise.transforms.manual.explicit import reshard
from shardwise.transforms.manual.shard_map_blocks import block_trace
from shardwise.transforms.manual.shard_map_marks import (
    cast_to_partial,
    check_marks,
    check_results,
    enter_block,
    leave_block,
    marks_of,
)
from shardwise.transforms.manual.shard_map_op import shard_map_op
from shardwise.transforms.manual.shard_map_scope import body_scope, local_type, spec_dims, split_by_vmaps

if TYPE_CHECKING:
    from shardwise.base.signatures import KeepsSignature


class Infer:
    """in_specs taken from the types of the arguments."""

    def __repr__(self) -> str:
        return "Infer"


INFER = Infer()


def typed_spec(aval: ShapedArray, manual: frozenset[str]) -> PartitionSpec:
    """The spec of a type over the manual axes."""
    dims = [tuple(a for a in axes if a in manual) for axes in aval.spec]
    return PartitionSpec(
        *[None if not axes else axes[0] if len(axes) == 1 else axes for axes in dims],
        unreduced=aval.unreduced & manual,
        reduced=aval.reduced & manual,
    )


def move_to(x: Array, dims: DimAxes, manual: frozenset[str]) -> Array:
    """`x` resharded to have its manual axes on the dims given by `dims`, if its type has them on others; other axes stay."""
    if x.aval.mesh is None:
        return x
    explicit_axes = x.aval.mesh.explicit_axes
    wanted_spec = tuple(
        tuple(a for a in own if a in explicit_axes) + tuple(a for a in axes if a not in manual)
        for own, axes in zip(dims, x.aval.spec, strict=True)
    )
    if wanted_spec == x.aval.spec:
        return x

    return reshard(x, PartitionSpec(*[None if not a else a[0] if len(a) == 1 else a for a in wanted_spec]))


def with_written_spec(x: Array, mesh: Any, spec: PartitionSpec, rules: Rules) -> Array:
    """`x`, a result outside of jit, with the spec written in out_specs if that is the same layout."""
    if not isinstance(x, ArrayImpl) or not isinstance(mesh, Mesh):
        return x
    own, written_sharding = x.sharding, NamedSharding(mesh, spec)
    elsewhere = not isinstance(own, NamedSharding) or own.mesh is not mesh
    if not elsewhere and not rules.results_wear_out_specs:
        return x
    if own == written_sharding or own.device_list != written_sharding.device_list:
        return x
    own_tiling = own.tiling(x.ndim)
    if own_tiling is None or not own_tiling.same_placement(
        written_sharding.tiling(x.ndim)
    ):  # automatic axes split it too
        return x
    written_signature = signature(x.aval, written_sharding, x.committed)
    if (
        written_signature.form is not x._sig.form or x._sig.varies
    ):  # another mesh may have other axes, and so has a block over it
        return under_signature(x, written_signature)
    return ArrayImpl(written_signature, dense=x._dense, block=x._block, origin=x._known_origin)


def is_spec(x: Any) -> bool:
    """Whether `x` is a leaf of a spec tree."""
    return isinstance(x, PartitionSpec) or x is None


@dataclass(frozen=True)
class ShardMap:
    """The options of one shard_map."""

    fun: Callable[..., Any]
    mesh: Mesh | AbstractMesh | None
    in_specs: Any
    out_specs: Any
    manual: frozenset[str] | None  # None: all axes of the mesh
    check: bool
    era: str | None = field(default=None, kw_only=True)  # the dialect whose rules hold; None: the current one
    own_derivatives: bool = field(default=False, kw_only=True)  # derivatives in the body are per device
    # Arguments with another split over Explicit axes are resharded, as in smap.
    moves: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """The function's name, for errors."""
        return getattr(self.fun, "__name__", repr(self.fun))

    @property
    def rules(self) -> Rules:
        """The rules of the dialect whose name made this."""
        return config.dialect_of(self.era).shard_map

    def newly_manual(self, mesh: Mesh | AbstractMesh) -> frozenset[str]:
        """The axes over which the body sees blocks: those that a `shard_map` around it has made manual stay as they are."""
        axes = frozenset(mesh.axis_names) if self.manual is None else self.manual
        return axes - frozenset(get_abstract_mesh().manual_axes)

    @user_facing
    def __call__(self, *args: Any) -> Any:
        mesh = self.resolve_mesh()
        manual = self.newly_manual(mesh)
        leaves, in_tree = tree_flatten(args)
        if any(isinstance(x, ReferenceView) for x in leaves):
            body = wraps(self.fun)(lambda *given: self.fun(*closed_views(given)))
            return replace(self, fun=body)(*open_views(args))
        if any(map(is_reference, leaves)):
            return self._with_parts(args, leaves, in_tree)

        def run(references: Sequence[Reference]) -> tuple[Sequence[Any], Any]:
            if not references:
                return (), self._call(args, leaves, in_tree, mesh, manual)
            body = over_state(self.fun, references)
            specs = Infer() if isinstance(self.in_specs, Infer) else (PartitionSpec(), *self._per_argument(args))
            again = replace(self, fun=body, in_specs=specs, out_specs=(PartitionSpec(), self.out_specs))
            return again([r.held() for r in references], *args)

        return with_references(run)

    def _per_argument(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """in_specs, one tree per argument."""
        return (
            tuple(self.in_specs)
            if isinstance(self.in_specs, (tuple, list)) and not is_spec(self.in_specs)
            else (self.in_specs,) * len(args)
        )

    def _with_parts(self, args: tuple[Any, ...], leaves: list[Any], in_tree: Any) -> Any:
        """The call with references among the arguments: the body gets references to the devices' parts."""
        references = [x for x in leaves if is_reference(x)]
        check_distinct(references)
        proxies = ProxiedReferences(references)
        arrays = tree_unflatten(in_tree, [x.held() if is_reference(x) else x for x in leaves])
        mesh = self.resolve_mesh()
        manual = self.newly_manual(mesh)
        if isinstance(self.in_specs, Infer):
            specs = [typed_spec(as_array(x).aval, manual) for x in tree_flatten(arrays)[0]]
        else:
            specs = self.broadcast(self.in_specs, args, "in_specs")
        reference_specs = [s for s, x in zip(specs, leaves, strict=True) if is_reference(x)]

        @wraps(self.fun)
        def body(*blocks: Any) -> Any:
            parts = [
                x.another(as_array(part)) if is_reference(x) else part
                for x, part in zip(leaves, tree_flatten(blocks)[0], strict=True)
            ]
            own = [part for part in parts if is_reference(part)]
            return proxies.run(own, lambda: self.fun(*tree_unflatten(in_tree, parts)))

        last, result = replace(self, fun=body, out_specs=(reference_specs, self.out_specs))(*arrays)
        proxies.store(last)
        return result

    def _call(self, args: tuple[Any, ...], leaves: list[Any], in_tree: Any, mesh: Any, manual: frozenset[str]) -> Any:
        static, specs, values, in_dims = self._inputs(args, leaves, mesh, manual)
        types = [local_type(v.aval, dims, mesh, manual) for v, dims in zip(values, in_dims, strict=True)]

        @wraps(self.fun)
        def run(*blocks: Any) -> Any:
            own = [enter_block(x, spec, self.check) for x, spec in zip(blocks, specs, strict=True)]
            given = iter(own)
            every = [static[i] if i in static else next(given) for i in range(len(leaves))] if static else own
            return self.fun(*tree_unflatten(in_tree, every))

        if config.jax_disable_jit:
            from shardwise.transforms.manual import stepping  # start-up time

            if stepping.wants_stepping():
                body = replace(self, fun=run)
                return stepping.step(body, mesh, manual, values, tree_flatten(tuple(values))[1], in_dims, types)
        eager = is_eager()
        if eager:
            errors.check_devices(mesh, values)
        once = PRINTS_ONCE.override(eager and self.rules.eager_prints_once)
        with body_scope(mesh, manual, self.check, self.era), LOCAL_DERIVATIVES.override(self.own_derivatives), once:
            trace = block_trace(self.name, mesh, manual, values, in_dims, shard_map_op, self.check) if eager else None
            flat = _Flat(self, run, mesh, manual)
            program, consts = trace_program(flat, types, self.name, trace=trace)
        out_specs = flat.specs
        errors.check_captured(self, consts)
        errors.check_out_ranks(self, out_specs, program.out_types)
        out_dims = tuple(spec_dims(s, t.ndim) for s, t in zip(out_specs, program.out_types, strict=True))
        if self.check:
            errors.check_replication(self, mesh, manual, out_specs, out_dims, program.out_types)
        captured_dims = tuple(((),) * c.aval.ndim for c in consts)
        outs = bind(
            shard_map_op,
            *consts,
            *values,
            program=program,
            mesh=mesh,
            manual=manual,
            in_dims=(*captured_dims, *in_dims),
            out_dims=out_dims,
            out_marks=tuple(marks_of(s) for s in out_specs),
            check=self.check,
            era=self.era,
        )
        if eager:
            outs = [with_written_spec(x, mesh, spec, self.rules) for x, spec in zip(outs, out_specs, strict=True)]
        return tree_unflatten(flat.tree, outs)

    def _inputs(
        self, args: tuple[Any, ...], leaves: list[Any], mesh: Any, manual: frozenset[str]
    ) -> tuple[dict[int, Any], list[PartitionSpec], list[Array], list[DimAxes]]:
        """The leaves that enter as they are, by position; and of the others the specs, the values, and the axes of each dim."""
        paths = [keystr(p) for p, _ in tree_flatten_with_path(args)[0]]
        static: dict[int, Any] = {}
        if isinstance(self.in_specs, Infer):
            errors.check_inferable(mesh, manual)
            values = [as_array(v) for v in leaves]
            specs = [typed_spec(v.aval, manual) for v in values]
        else:
            every = self.broadcast(self.in_specs, args, "in_specs")
            static = {i: leaf for i, (spec, leaf) in enumerate(zip(every, leaves, strict=True)) if spec is None}
            specs = [spec for spec in every if spec is not None]
            values = [as_array(v) for i, v in enumerate(leaves) if i not in static]
            paths = [path for i, path in enumerate(paths) if i not in static]
        errors.check_specs(self, mesh, manual, "in", specs)
        check_marks(mesh, manual, "in", specs)
        spec_leaves = tree_flatten(self.out_specs, is_leaf=is_spec)[0]
        errors.check_specs(self, mesh, manual, "out", [spec for spec in spec_leaves if isinstance(spec, PartitionSpec)])
        errors.check_in_ranks(self, specs, values, paths)
        in_dims = [spec_dims(s, v.ndim) for s, v in zip(specs, values, strict=True)]
        errors.check_divisible(self, mesh, specs, in_dims, values, paths)
        must_match = self.rules.inputs_match_types
        inside = manual | split_by_vmaps()
        if not self.moves and must_match and inside == frozenset(mesh.axis_names) == frozenset(mesh.explicit_axes):
            errors.check_explicit_inputs(specs, in_dims, values)
        elif self.moves or must_match:
            values = [move_to(v, dims, manual) for v, dims in zip(values, in_dims, strict=True)]
        return static, specs, values, in_dims

    def resolve_mesh(self) -> Mesh | AbstractMesh:
        """The given mesh, or the mesh in context; ValueError if both exist and differ, or neither exists."""
        context = get_abstract_mesh()
        mesh = self.mesh
        if mesh is None:
            if context.empty:
                raise ValueError(
                    "The context mesh cannot be empty. Pass mesh= to shard_map, or call it under "
                    f"{config.dialect_of(self.era).meshes.entered_by}(mesh)."
                )
            concrete = get_concrete_mesh()
            return concrete if not concrete.empty and not context.manual_axes else context
        if not context.empty and self.rules.mesh_must_match_context:
            same = mesh.axis_names == context.axis_names and mesh.axis_sizes == context.axis_sizes
            if not same or (context.manual_axes and isinstance(mesh, Mesh)):
                raise ValueError(
                    f"The context mesh {context} should match the mesh passed to shard_map {mesh}. Leave mesh= out, "
                    "or pass get_abstract_mesh()."
                )
        return mesh

    def flat_out_specs(self, out_tree: Any, outs: Sequence[Any]) -> list[PartitionSpec]:
        """One spec per result leaf; errors speak of the results `outs`."""
        return self.broadcast(self.out_specs, tree_unflatten(out_tree, outs), "out_specs")

    def broadcast(self, specs: Any, tree: Any, option: str) -> list[Any]:
        """`specs`, a prefix of `tree`, as one spec per leaf; None in in_specs leaves a value unchanged."""
        errors.check_leaves(self, specs, option)
        is_leaf = is_spec if option == "in_specs" else lambda x: isinstance(x, PartitionSpec)
        return broadcast_prefix(specs, tree, is_leaf=is_leaf, name=f"shard_map {option}")


class _Flat:
    """The body as a function of blocks to blocks. Traced, it knows the tree of its results and their `specs`."""

    def __init__(self, call: ShardMap, run: Callable[..., Any], mesh: Any, manual: frozenset[str]) -> None:
        self._call, self._run, self._mesh, self._manual = call, run, mesh, manual
        self.tree: Any = None
        self.specs: list[PartitionSpec] = []

    def __call__(self, *blocks: Any) -> list[Any]:
        call = self._call
        outs, self.tree = tree_flatten(self._run(*blocks))
        for leaf in outs:
            errors.check_output_type(call, leaf)
        self.specs = call.flat_out_specs(self.tree, outs)
        errors.check_specs(call, self._mesh, self._manual, "out", self.specs)
        check_marks(self._mesh, self._manual, "out", self.specs)
        results = [as_array(o) for o in outs]
        if call.check:
            results = [cast_to_partial(x, spec) for x, spec in zip(results, self.specs, strict=True)]
            check_results(call.name, self.specs, results)
        return [leave_block(x, spec) for x, spec in zip(results, self.specs, strict=True)]


# -- public --------------------------------------------------------------------------------------------------------------------


def make_shard_map(
    f: Callable[..., Any],
    *,
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    manual: frozenset[str] | None,
    check: bool,
    era: str | None = None,
    own_derivatives: bool = False,
    moves: bool = False,
) -> Callable[..., Any]:
    """Check the options and wrap `f`."""
    if not callable(f):
        raise TypeError(f"shard_map requires a callable for its first argument, but got {f!r}")
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(
            f"shard_map requires a `jax.sharding.Mesh` or a `jax.sharding.AbstractMesh` instance for its second argument, "
            f"but got {mesh} of type {type(mesh)}."
        )
    mapped_function = ShardMap(
        f, mesh, in_specs, out_specs, manual, check, era=era, own_derivatives=own_derivatives, moves=moves
    )

    @wraps(f)
    def wrapper(*args: Any) -> Any:
        return mapped_function(*args)

    return wrapper


@overload
def shard_map(
    f: Callable[P, R],
    /,
    *,
    out_specs: Any,
    in_specs: Any = INFER,
    mesh: Any = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> Callable[P, R]: ...
@overload
def shard_map(
    f: None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = INFER,
    mesh: Any = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> KeepsSignature: ...
def shard_map(
    f: Any = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = INFER,
    mesh: Any = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Map `f` over the blocks of its arguments: one call per device, all at once.

    `axis_names` are the mesh axes that are manual in the body (all of them if empty). Without `f` returns a
    decorator. The blocks have the rank of the whole: f32[8, 3] split over "x" of size 4 comes as f32[2, 3].

    Args:
        out_specs: how results are put together, likewise. An axis that a spec leaves out needs a result that does not
            vary over it.
        in_specs: how arguments are split, a prefix tree of PartitionSpecs; without it the types of Explicit arguments
            say it.
        mesh: the Mesh; None: that of the context.
        check_vma: verify that by following which values vary over which axes.

    Raises:
        TypeError: `axis_names` is no set, or a spec is none.
        ValueError: `axis_names` are not of the mesh, or a spec does not fit its array.

    >>> mesh = jax.make_mesh((4,), ("x",))
    >>> f = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P())
    >>> f(jnp.arange(8))
    Array([12, 16], dtype=int32)
    """
    if not isinstance(axis_names, (set, frozenset)):
        raise TypeError(
            f"`axis_names` argument of shard_map should be of type `frozenset` or `set`. Got type: {type(axis_names)}."
        )
    manual = frozenset(axis_names) or None
    if manual is not None and mesh is not None and not manual <= set(mesh.axis_names):
        raise ValueError(f"axis_names={set(manual)} should be a subset of mesh.axis_names={mesh.axis_names}.")
    options: dict[str, Any] = dict(
        mesh=mesh, in_specs=in_specs, out_specs=out_specs, manual=manual, check=check_vma, era=TODAY
    )
    if f is None:
        return lambda g: make_shard_map(g, **options)
    return make_shard_map(f, **options)


def experimental_shard_map(
    f: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    check_rep: bool = True,
    auto: frozenset[str] = frozenset(),
    **new: Any,
) -> Any:
    """`shard_map` with the seed era's arguments: `check_rep`, and `auto` for the axes that stay automatic.

    In the dialect 0.5, derivatives taken inside `f` are per device: the gradient of a loss with respect to replicated
    parameters is the device's own part of it, and `f` must sum the parts. `mesh`, `in_specs`, `out_specs` and the
    `new` arguments are those of `shardwise.shard_map`.

    Raises:
        TypeError: an argument is missing or unknown. ValueError: an axis is not of the mesh.

    >>> from shardwise.experimental.shard_map import shard_map
    >>> mesh = jax.make_mesh((4,), ("x",))
    >>> shard_map(lambda x: jax.lax.psum(x, "x"), mesh, in_specs=jax.P("x"), out_specs=jax.P())(jnp.arange(8))
    Array([12, 16], dtype=int32)
    """
    own = config.dialect.shard_map.experimental_grad_is_local and "check_vma" not in new
    check = new.pop("check_vma", check_rep)
    axis_names = new.pop("axis_names", None)
    if new:
        raise TypeError(f"shard_map got an unexpected keyword argument {next(iter(new))!r}")
    manual = None
    if auto:
        if mesh is None:
            raise ValueError("shard_map with auto= needs mesh=.")
        if not set(auto) <= set(mesh.axis_names):
            raise ValueError(
                f"shard_map requires auto={set(auto)} to be a subset of mesh.axis_names={mesh.axis_names}."
            )
        manual = frozenset(mesh.axis_names) - frozenset(auto)
    elif axis_names:
        manual = frozenset(axis_names)
    return make_shard_map(
        f,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        manual=manual,
        check=check,
        own_derivatives=own,
    )
