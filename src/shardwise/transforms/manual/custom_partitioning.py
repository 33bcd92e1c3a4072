"""`custom_partitioning`: a function with its own rule for running on the parts of its arguments.

In: the function, and callbacks that partitioning calls to get the layout of the results and the function that each device
runs. Out: one op in the program; partitioning replaces it by the result of the callback `partition`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.shapes import DimAxes
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_leaves, tree_unflatten
from shardwise.base.wrapping import copy_identity
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.ir import (
    Equation,
    Program,
    ShapedArray,
    bind,
    define_op,
    is_eager,
    trace_of_operands,
    trace_program,
    tracing,
)
from shardwise.ir.op import Params, Types
from shardwise.ops.control.regions import no_rule
from shardwise.ops.rules.convert import as_array
from shardwise.passes import inline_calls
from shardwise.runtime.env import Env
from shardwise.sharding import GSPMDSharding, Mesh, NamedSharding, PartitionSpec
from shardwise.sharding.factor_rule import SdyShardingRule, parse_rule
from shardwise.sharding.rule import Rule
from shardwise.transforms.manual.shard_map_scope import body_scope


class custom_partitioning:
    """`fun` as one op whose partitioning `def_partition` defines; arguments `static_argnums` go to the callbacks unchanged.

    >>> @custom_partitioning
    ... def double(x):
    ...     return 2 * x
    >>> def partition(mesh, arg_shapes, result_shape):  # each device doubles its own part
    ...     sharding = arg_shapes[0].sharding
    ...     return mesh, lambda x: 2 * x, sharding, (sharding,)
    >>> _ = double.def_partition(partition, lambda mesh, arg_shapes, shape: arg_shapes[0].sharding, sharding_rule="i -> i")
    >>> print(jax.jit(double)(jnp.arange(3)))
    [0 2 4]

    Called eagerly, on one device or inside of a shard_map, it calls `fun`. It has no derivative and no batching rule: wrap it
    in `custom_vjp` or `custom_vmap` for those.
    """

    def __init__(self, fun: Callable[..., Any], static_argnums: Sequence[int] = ()) -> None:
        copy_identity(self, fun)
        self.fun = fun
        self.static_argnums = tuple(static_argnums)
        self.partition: Callable[..., Any] | None = None
        self.rule: Any = None
        self.name: str = getattr(fun, "__name__", type(fun).__name__)

    def def_partition(
        self,
        partition: Callable[..., Any],
        infer_sharding_from_operands: Callable[..., Any] | None = None,
        propagate_user_sharding: Callable[..., Any] | None = None,
        decode_shardings: bool = True,
        sharding_rule: Any = None,
        *,
        reduction_factors: Sequence[str] | None = None,
        need_replication_factors: Sequence[str] | None = None,
        permutation_factors: Sequence[str] | None = None,
        **factor_sizes: int,
    ) -> Callable[..., Any]:
        """Define the layout of the results and the function that each device runs.

        Args:
            partition: ``(*static, mesh, arg_shapes, result_shape) -> (mesh, lower_fn, result_shardings, arg_shardings)``. The
                shapes are trees of ShapeDtypeStructs with shardings; `lower_fn` runs on the parts, where collectives may name
                the mesh's axes.
            infer_sharding_from_operands: ``(*static, mesh, arg_shapes, result_shape) -> result shardings``, used without a
                `sharding_rule`.
            propagate_user_sharding: ``(*static, mesh, user_shape) -> sharding`` of a result whose user wants the sharding of
                `user_shape`; used without a `sharding_rule`.
            decode_shardings: True: the callbacks get NamedShardings; False: GSPMDShardings.
            sharding_rule: a text such as ``"i j, j k -> i k"``, an `SdyShardingRule`, or a function
                ``(*static, mesh, arg_types, result_types)`` that returns one (or a text and a dict of options). The types are lists,
                an item a leaf, with ``shape`` and ``rank``.
            reduction_factors: with the next two and `factor_sizes`, the options of a rule given as text.
            need_replication_factors: factors that must not be split.
            permutation_factors: factors along which neighbouring parts are exchanged.
            **factor_sizes: sizes of factors in compound dims.

        Returns `partition`, so that this may be used as a decorator.
        """
        self.partition = partition
        self.infer = infer_sharding_from_operands
        self.follow = propagate_user_sharding
        self.decode = decode_shardings
        special = dict(
            reduction_factors=reduction_factors,
            need_replication_factors=need_replication_factors,
            permutation_factors=permutation_factors,
        )
        self.options = {k: v for k, v in special.items() if v is not None} | factor_sizes
        if self.options and not isinstance(sharding_rule, str):
            raise ValueError(
                "Factors and their sizes are given with a sharding_rule that is a str; an SdyShardingRule holds them."
            )
        self.rule = parse_rule(sharding_rule, **self.options) if isinstance(sharding_rule, str) else sharding_rule
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                f"custom_partitioning of {self.name} takes no keyword-only arguments, got {list(bound.kwargs)}. Close over them."
            )
        given = bound.args
        trace = trace_of_operands(tree_leaves(given))
        if trace is not None:
            with tracing(trace):
                return self(*given)
        if is_eager():
            return self.fun(*given)
        static_args = {i % len(given): given[i] for i in self.static_argnums if -len(given) <= i < len(given)}
        leaves, in_tree = tree_flatten(tuple(x for i, x in enumerate(given) if i not in static_args))
        values = [as_array(leaf) for leaf in leaves]
        out_tree: PyTreeDef | None = None

        def flat(*inner: Any) -> list[Any]:
            nonlocal out_tree
            dynamic = iter(tree_unflatten(in_tree, list(inner)))
            outs, out_tree = tree_flatten(
                self.fun(*[static_args[i] if i in static_args else next(dynamic) for i in range(len(given))])
            )
            return [as_array(o) for o in outs]

        program, consts = trace_program(flat, [v.aval for v in values], self.name)
        if consts:
            raise ValueError(
                f"{self.name}, a function with custom_partitioning, uses arrays that are not among its arguments. Pass them."
            )
        assert out_tree is not None
        call = _Call(self, tuple(static_args[i] for i in sorted(static_args)), in_tree, out_tree)
        return tree_unflatten(out_tree, bind(custom_partitioning_op, *values, program=program, call=call))


class _TensorType(ShapeDtypeStruct):
    """The type of a leaf, with the names that it has as a tensor of MLIR, which is what JAX gives to functions that make rules."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        return self.ndim

    def get_dim_size(self, dim: int) -> int:
        return self.shape[dim]


class _Call:
    """One call's structure; equal only to itself."""

    __slots__ = ("in_tree", "out_tree", "owner", "static")

    def __init__(
        self, owner: custom_partitioning, static: tuple[Any, ...], in_tree: PyTreeDef, out_tree: PyTreeDef
    ) -> None:
        self.owner, self.static, self.in_tree, self.out_tree = owner, static, in_tree, out_tree

    def rule_for(self, mesh: Mesh | None, ins: Types, outs: Types) -> Rule | None:
        """The sharding rule; None if the user gave none."""
        rule = self.owner.rule
        if rule is None:
            return None
        if not isinstance(rule, SdyShardingRule):
            lists = [[_TensorType(t.shape, t.dtype) for t in types] for types in (ins, outs)]
            rule = rule(*self.static, mesh, *lists)
        if not isinstance(rule, SdyShardingRule):
            text, options = rule if isinstance(rule, list | tuple) else (rule, {})
            rule = parse_rule(text, **options)
        return rule.rule_for([t.shape for t in ins], [t.shape for t in outs])

    def structs(self, tree: PyTreeDef, types: Sequence[ShapedArray], shardings: Sequence[Any]) -> Any:
        """The ShapeDtypeStructs of arguments or results for the callbacks."""
        return tree_unflatten(
            tree, [ShapeDtypeStruct(t.shape, t.dtype, sharding=s) for t, s in zip(types, shardings, strict=True)]
        )


# -- the op --------------------------------------------------------------------------------------------------------------------


def _type(*types: ShapedArray, program: Program, call: _Call, **on_grid: Any) -> tuple[ShapedArray, ...]:
    return tuple(program.out_types)


def _rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """The user's rule; without one, a rule from the results' inferred layouts."""
    return params["call"].rule_for(params.get("mesh"), in_types, out_types) or no_rule(in_types, out_types, params)


def _to_grid(params: Params, grid: Any, in_types: Types, out_types: Types) -> Params:
    names, sizes = grid.mesh
    mesh = Mesh(np.array(grid.devices, dtype=object).reshape(sizes), names) if names else None
    return {**params, "mesh": mesh}


def _partition(region: Any, eqn: Equation) -> None:
    """The equations of `lower_fn` on the parts; without parts, the equations of the function itself."""
    call: _Call = eqn.params["call"]
    grid, owner = region.grid, call.owner
    read = [region.read(a) for a in eqn.inputs]
    if eqn.params["mesh"] is None or region.manual:
        _inline_program(region, eqn, eqn.params["program"], [(atom, ((),) * atom.aval.ndim) for atom, _ in read])
        return
    if owner.partition is None:
        raise ValueError(
            f"{owner.name}: call def_partition before a function with custom_partitioning is used under jit."
        )
    if owner.rule is None and config.dialect.jit.custom_partitioning_needs_rule:
        raise NotImplementedError(
            f"{owner.name} has no sharding_rule; provide sharding_rule to migrate to Shardy: def_partition(..., "
            "sharding_rule='i j -> i j')."
        )
    mesh: Mesh = eqn.params["mesh"]
    in_types, out_types = [a.aval for a in eqn.inputs], [v.aval for v in eqn.outputs]
    in_dims = [dims or ((),) * t.ndim for (_, dims), t in zip(read, in_types, strict=True)]
    sharding_of = functools.partial(_sharding_for_rule, mesh, owner.decode)
    args = call.structs(call.in_tree, in_types, [sharding_of(d) for d in in_dims])
    out_layouts = [region.placements.get(v, ((),) * v.aval.ndim) for v in eqn.outputs]
    if owner.rule is None:
        out_layouts = _infer_layouts(call, mesh, args, out_types, out_layouts, grid)
    results = call.structs(call.out_tree, out_types, [sharding_of(d) for d in out_layouts])
    _, lower, out_shardings, arg_shardings = owner.partition(*call.static, mesh, args, results)
    out_dims = _dims_of(grid, mesh, out_shardings, out_types)
    atoms = [
        region.reshard(atom, have, want, t)
        for (atom, _), have, want, t in zip(
            read, in_dims, _dims_of(grid, mesh, arg_shardings, in_types), in_types, strict=True
        )
    ]
    program = _lower_parts(call, mesh, lower, [a.aval for a in atoms])
    wanted_types = [region.local_type(t, d) for t, d in zip(out_types, out_dims, strict=True)]
    given_types = program.out_types
    if [(t.shape, t.dtype) for t in given_types] != [(t.shape, t.dtype) for t in wanted_types]:
        raise ValueError(
            f"Mismatch in result shapes. {owner.name}: the parts of results split as partition says are "
            f"{[t.str_short() for t in wanted_types]}, but lower_fn gives {[t.str_short() for t in given_types]}."
        )
    _inline_program(region, eqn, program, [(a, ((),) * a.aval.ndim) for a in atoms], out_dims)


def _sharding_for_rule(mesh: Mesh, decode: bool, dims: DimAxes) -> NamedSharding | GSPMDSharding:
    named_sharding = NamedSharding(mesh, PartitionSpec(*[None if not a else a[0] if len(a) == 1 else a for a in dims]))
    return named_sharding if decode else GSPMDSharding(mesh.device_list, named_sharding._to_xla_hlo_sharding(len(dims)))


def _infer_layouts(
    call: _Call, mesh: Mesh, args: Any, types: Sequence[ShapedArray], asked: Sequence[DimAxes], grid: Any
) -> list[DimAxes]:
    """The layouts of results without a rule: from an equation that uses them, or from the operands."""
    owner = call.owner
    if len(types) == 1 and any(asked[0]) and owner.follow is not None:
        wish = ShapeDtypeStruct(
            types[0].shape, types[0].dtype, sharding=_sharding_for_rule(mesh, owner.decode, asked[0])
        )
        return _dims_of(grid, mesh, owner.follow(*call.static, mesh, wish), types)
    if owner.infer is None:
        return list(asked)
    blank = call.structs(call.out_tree, types, [None] * len(types))
    return _dims_of(grid, mesh, owner.infer(*call.static, mesh, args, blank), types)


def _dims_of(grid: Any, mesh: Mesh, shardings: Any, types: Sequence[ShapedArray]) -> list[DimAxes]:
    """The layouts that a tree of shardings describes, in grid axes."""
    leaves = tree_flatten(shardings)[0]
    if len(leaves) != len(types):
        raise ValueError(
            f"custom_partitioning: {len(leaves)} shardings were given for {len(types)} values: {shardings}"
        )
    sizes, layouts = grid.axis_sizes, []
    for s, t in zip(leaves, types, strict=True):
        if isinstance(s, NamedSharding) and s.mesh.shape_tuple == mesh.shape_tuple:
            dims = s.dims + ((),) * (t.ndim - len(s.dims))
            layouts.append(tuple(tuple(a for a in axes if sizes.get(a, 1) > 1) for axes in dims))
        else:
            layouts.append(grid.dims_of(s.tiling(t.ndim)))
    return layouts


def _lower_parts(call: _Call, mesh: Mesh, lower: Callable[..., Any], types: Sequence[ShapedArray]) -> Program:
    """`lower_fn` for parts of these types."""

    def flat(*parts: Any) -> list[Any]:
        outs, tree = tree_flatten(lower(*tree_unflatten(call.in_tree, list(parts))))
        if tree != call.out_tree:
            raise ValueError(f"lower_fn gives the tree {tree}, but the function itself {call.out_tree}.")
        return [as_array(o) for o in outs]

    with body_scope(mesh, frozenset(mesh.axis_names), check=False):
        program, consts = trace_program(flat, types, call.owner.name)
    if consts:
        raise NotImplementedError(
            "lower_fn uses arrays that are not among its arguments; make them inside of it with jnp."
        )
    return inline_calls(program)  # calls around it were inlined before partitioning began


def _inline_program(
    region: Any,
    eqn: Equation,
    program: Program,
    inputs: Sequence[tuple[Any, DimAxes]],
    out_dims: Sequence[DimAxes] | None = None,
) -> None:
    """Append the equations of `program`, on whole values or parts as it needs, with its outputs as the results of `eqn`."""
    names = frozenset(region.grid.names)
    scope = {a: (a,) if a in names else () for a in (*region.grid.mesh[0], *region.grid.names)}
    body = region.sub({}, scope={**region.scope, **scope}, manual=names)
    for var, (atom, dims) in zip(program.inputs, inputs, strict=True):
        body.define(var, atom, dims)
    body.run(program)
    for i, (var, result) in enumerate(zip(eqn.outputs, program.outputs, strict=True)):
        atom, dims = body.read(result)
        if out_dims is not None:
            dims = out_dims[i]
            region.known.differs |= (atom.aval.vma & names).difference(*dims)
        region.define(var, atom, dims)


def _no_batching(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> Any:
    raise NotImplementedError(
        f"vmap of {params['call'].owner.name}, a function with custom_partitioning, is not supported: only one of the two can say "
        "how its dims are split. Wrap it in custom_vmap."
    )


def _kernel(env: Env, *blocks: Any, **params: Any) -> Any:
    raise AssertionError("partitioning puts other equations in the place of custom_partitioning")


custom_partitioning_op = define_op(
    "custom_partitioning",
    holds_functions=True,
    type_rule=_type,
    kernel=_kernel,
    rule=_rule,
    multiple_results=True,
    typed=True,
    to_grid=_to_grid,
    partition=_partition,
    batch=_no_batching,
)
