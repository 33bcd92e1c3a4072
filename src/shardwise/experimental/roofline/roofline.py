"""`roofline` and `roofline_and_grad`: a function's `RooflineResult` on each device of a mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.experimental.roofline.result import RooflineResult
from shardwise.experimental.roofline.rules import count_equation
from shardwise.ir import Loop, Program, Var, region_of, subprograms
from shardwise.numpy import bfloat16, int32
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, get_concrete_mesh
from shardwise.transforms.derivatives.autodiff import vjp as derivative
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.manual.shard_map import shard_map

Grid = Mesh | AbstractMesh


def roofline(
    f: Callable[..., Any],
    mesh: Grid | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    vjp: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult]]:
    """A function like `f` that gives the structs of its results, and a device's work for them.

    Args:
        f: with `mesh`, `in_specs` and `out_specs` a function as `shard_map` takes it, else one of whole arrays.
        mesh: on which it runs; arguments may also bring their own shardings.
        in_specs: specs of the arguments over the mesh, as those of `shard_map`.
        out_specs: specs of the results.
        pin_lhs_in_vmem: left operands and results of products stay on the chip.
        pin_rhs_in_vmem: right operands do.
        vjp: count the backward pass, its cotangents like the results: with specs alone, else after the forward pass.
        print_jaxpr: print the program that is counted.

    >>> import shardwise as jax, shardwise.numpy as jnp
    >>> a = jax.ShapeDtypeStruct((64, 32), jnp.float32)
    >>> structs, found = roofline(lambda a, b: jnp.sin(a @ b.T))(a, a)
    >>> structs.shape, found.flops, found.unfused_flops - found.flops
    ((64, 64), 262144, 4096)
    """

    @wraps(f)
    def count_call(*args: Any) -> tuple[Any, RooflineResult]:
        function = f
        manual = mesh is not None and in_specs is not None and out_specs is not None
        structs = tree_map(_struct, args)
        if manual:
            function = shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
        if mesh is not None:
            structs = _over_mesh(structs, mesh, in_specs if manual else PartitionSpec())
        traced_function = jit(_with_vjp(function) if vjp else function, keep_unused=True).trace(*structs)
        lowered_function = (
            traced_function.lower(lowering_platforms=("tpu",))
            if _names_no_devices(structs)
            else traced_function.lower()
        )
        executable = lowered_function._entry.executable
        program = executable.device_program
        if print_jaxpr:
            print(program)
        context = {
            "name_stack": f"roofline({getattr(f, '__qualname__', type(f).__name__)})",
            "mesh": mesh,
            "pin_lhs_in_vmem": pin_lhs_in_vmem,
            "pin_rhs_in_vmem": pin_rhs_in_vmem,
        }
        results = traced_function.eval_shape()
        if mesh is not None and out_specs is not None:
            results = _over_mesh(results, mesh, out_specs)
        backward_alone = vjp and manual
        return results, count_program(program, dict(executable.grid.axis_sizes), context, backward_alone)

    return count_call


def roofline_and_grad(
    f: Callable[..., Any],
    mesh: Grid,
    in_specs: Any,
    out_specs: Any,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult, RooflineResult]]:
    """A function that gives the structs of `f`'s results, what a device does for them, and what it does with the
    backward pass.

    The backward pass is that of arguments in bfloat16, except int32 ones. `mesh`, `in_specs`, `out_specs`,
    `pin_lhs_in_vmem`, `pin_rhs_in_vmem` and `print_jaxpr` are those of `roofline`.

    >>> a = jax.ShapeDtypeStruct((64, 32), jnp.float32)
    >>> mesh = jax.make_mesh((1,), ("x",))
    >>> f = jax.experimental.roofline.roofline_and_grad(lambda a: a @ a.T, mesh, jax.P(), jax.P())
    >>> structs, forward, backward = f(a)
    >>> forward.flops, backward.flops
    (262144, 524288)
    """
    options: dict[str, Any] = {
        "pin_lhs_in_vmem": pin_lhs_in_vmem, "pin_rhs_in_vmem": pin_rhs_in_vmem, "print_jaxpr": print_jaxpr,
    }  # fmt: skip

    def training_struct(x: Any) -> Any:
        struct = _struct(x)
        return struct if struct.dtype == int32 else struct.update(dtype=bfloat16, weak_type=False)

    @wraps(f)
    def count_call(*args: Any) -> tuple[Any, RooflineResult, RooflineResult]:
        structs, forward = roofline(f, mesh, in_specs, out_specs, **options)(*args)
        both = roofline(f, mesh, in_specs, out_specs, vjp=True, **options)(*tree_map(training_struct, args))[1]
        return structs, forward, both

    return count_call


def count_program(
    program: Program, sizes: dict[str, int], context: dict[str, Any], backward_alone: bool = False
) -> RooflineResult:
    """The work of a device in one run of a program: loops as often as they run (once where that is unknown), of branches the largest.

    `backward_alone`: only equations of a backward pass count; the peak is that of all.
    """
    result = RooflineResult.zeros()
    last = {atom: i for i, eqn in enumerate(program.equations) for atom in eqn.inputs if isinstance(atom, Var)}
    forever = {atom for atom in program.outputs if isinstance(atom, Var)}
    alive = peak = sum(v.aval.nbytes for v in program.inputs)
    for i, eqn in enumerate(program.equations):
        region = region_of(eqn)
        bodies = list(region.programs) if region is not None else [p for _, p in subprograms(eqn.params)]
        own = sum(v.aval.nbytes for v in eqn.outputs)
        if not bodies:
            counts = not backward_alone or (eqn.source is not None and eqn.source.backward)
            result += count_equation(eqn, sizes, context) if counts else RooflineResult.zeros()
        else:
            parts = [count_program(body, sizes, context, backward_alone) for body in bodies]
            inner = functools.reduce(
                RooflineResult.__add__ if isinstance(region, Loop) else RooflineResult.largest, parts
            )
            given = min(sum(v.aval.nbytes for v in body.inputs) for body in bodies)
            peak = max(peak, alive + max(own, inner.peak_hbm_bytes - given))
            result += inner.repeat_runs((region.length or 1) if isinstance(region, Loop) else 1)
        alive += own
        dead = {a for a in eqn.inputs if isinstance(a, Var) and last[a] == i and a not in forever}
        alive -= sum(a.aval.nbytes for a in dead)
        peak = max(peak, alive)
    return replace(result, peak_hbm_bytes=peak)


def _struct(x: Any) -> ShapeDtypeStruct:
    return x if isinstance(x, ShapeDtypeStruct) else ShapeDtypeStruct.like(x)


def _names_no_devices(structs: Any) -> bool:
    """Whether nothing but AbstractMeshes tells where the arguments lie: no figure of a roofline depends on the platform."""
    meshes = [s.sharding.mesh for s in tree_leaves(structs) if isinstance(s.sharding, NamedSharding)]
    return bool(meshes) and not any(isinstance(m, Mesh) for m in meshes) and get_concrete_mesh().empty


def _over_mesh(structs: Any, mesh: Grid, specs: Any) -> Any:
    """Structs with shardings by their specs, unless they have some."""
    leaves, tree = tree_flatten(structs)
    flat_specs = broadcast_prefix(specs, structs, is_leaf=lambda x: x is None or isinstance(x, PartitionSpec))
    placed_structs = [
        leaf if leaf.sharding is not None else leaf.update(sharding=NamedSharding(mesh, spec or PartitionSpec()))
        for leaf, spec in zip(leaves, flat_specs, strict=True)
    ]
    return tree_unflatten(tree, placed_structs)


def _with_vjp(f: Callable[..., Any]) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        results, backward = derivative(f, *args)
        return backward(results)

    return both


__dir__ = _listing(__name__)
