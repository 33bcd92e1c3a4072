"""`pallas_call`: a kernel run over its grid, one step after the other, as a loop that any program may hold.

Each step reads the blocks of its operands and results, runs the kernel on Refs to them, and writes back those that the kernel wrote. Arrays
are padded to whole blocks before, and cut back after the loop. JAX's interpreter does the same, with the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.dtypes import canonicalize
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import PyTreeDef, equality_errors, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from shardwise.experimental.pallas.grid import at_position, unravel
from shardwise.experimental.pallas.mapping import INDEX, mapping_of
from shardwise.experimental.pallas.mapping import Mapping as BlockMapping
from shardwise.experimental.pallas.memory import uninitialized_array
from shardwise.experimental.pallas.specs import BlockSpec, CostEstimate, GridSpec, no_block_spec
from shardwise.experimental.pallas.traffic import written_kernel
from shardwise.ir import Array, ShapedArray, Tracer, as_one_kernel, bind, eval_program
from shardwise.ops.control.bodies import Body, trace_body
from shardwise.ops.devices.variance import pvary_op
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ref import Ref
from shardwise.transforms.jit.jit import jit


@dataclass(frozen=True)
class _Kernel:
    """A kernel traced on blocks.

    Attributes:
        body: from the grid's indices, the scalars and the blocks to the last values of the blocks.
        written: for each block whether the kernel writes it.
    """

    body: Body
    written: tuple[bool, ...]


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] | None = None,
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: CostEstimate | None = None,
    metadata: dict[str, str] | None = None,
) -> Callable[..., Any]:
    """A function of arrays that runs `kernel` once per position of a grid.

    The kernel gets a Ref for each operand, each result and each scratch shape, and returns None. It is always interpreted: there is no
    compiler for it here. Plans for accelerators count it as the one kernel that it is there.

    Args:
        kernel: ``kernel(*operands, *results, *scratch)``; scratch memory by name where `scratch_shapes` is a dict.
        out_shape: a tree of shapes and dtypes.
        grid_spec: grid, specs and scratch shapes in one; then those are not given.
        grid: how often the kernel runs: sizes, of which some may be arrays. The last one varies fastest.
        in_specs, out_specs: trees of `BlockSpec` like the operands and the results; by default they are not cut.
        scratch_shapes: memory that lasts from the first step to the last one.
        input_output_aliases: from the number of an operand to that of the result that begins with its values.
        debug: print the traced kernel.
        cost_estimate: the cost of a call; plans for accelerators count it in place of the kernel's ops.
        interpret, compiler_params, metadata: for compilers; they change nothing here.
        name: the function's name.

    Raises:
        ValueError: trees that do not fit each other, specs that do not fit their array, aliases of other types, or a kernel that returns
            a value or closes over an array.
        NotImplementedError: dims that are not interpreted (`BoundedSlice`, `Indirect`), or results of complex dtype that alias no operand.

    >>> def double(x_ref, o_ref):
    ...     o_ref[...] = x_ref[...] * 2
    >>> spec = BlockSpec((4,), lambda i: (i,))
    >>> pallas_call(double, jax.ShapeDtypeStruct((8,), jnp.int32), grid=(2,), in_specs=[spec], out_specs=spec)(jnp.arange(8))
    Array([ 0,  2,  4,  6,  8, 10, 12, 14], dtype=int32)
    """
    if grid_spec is None:
        grid_spec = GridSpec(grid, in_specs, out_specs, scratch_shapes)
    else:
        given = {"grid": (grid, ()), "scratch_shapes": (scratch_shapes, ())}
        given |= {"in_specs": (in_specs, no_block_spec), "out_specs": (out_specs, no_block_spec)}
        for what, (value, default) in given.items():
            if value is not default and value != default:
                raise ValueError(f"If `grid_spec` is specified, then `{what}` must be `{default}`. It is {value}")
    shapes = tuple(out_shape) if isinstance(out_shape, list) else out_shape
    aliases = dict(input_output_aliases or {})
    title = name or getattr(kernel, "__name__", "kernel")

    def call(*args: Any) -> Any:
        return _call(kernel, title, shapes, grid_spec, aliases, debug, cost_estimate, args)

    call.__name__ = call.__qualname__ = title
    return jit(call, inline=True)


def _call(
    kernel: Callable[..., None],
    title: str,
    out_shape: Any,
    spec: GridSpec,
    aliases: dict[int, int],
    debug: bool,
    cost: CostEstimate | None,
    args: tuple[Any, ...],
) -> Any:
    with_paths, in_tree = tree_flatten_with_path(args)
    values = [as_array(as_value(x)) for _, x in with_paths]
    values = [as_array(convert(x, x.dtype, False)) for x in values]
    outs, out_tree = tree_flatten_with_path(out_shape)
    out_types = [ShapedArray(tuple(o.shape), canonicalize(o.dtype)) for _, o in outs]

    prefetch_args = args[: spec.num_scalar_prefetch]
    first = len(tree_flatten(prefetch_args)[0])
    scalars, operands = values[:first], values[first:]
    blocks = _mappings(
        spec.in_specs, "`in_specs`", args[spec.num_scalar_prefetch :], "`inputs`",
        [(f"args{keystr(path)}", x.aval) for (path, _), x in zip(with_paths[first:], operands, strict=True)],
        spec.grid, scalars,
    )  # fmt: skip
    results = _mappings(
        spec.out_specs, "`out_specs`", out_shape, "`out_shape`",
        [(f"outputs{keystr(path)}", t) for (path, _), t in zip(outs, out_types, strict=True)],
        spec.grid, scalars,
    )  # fmt: skip
    scratch, scratch_tree = tree_flatten(spec.scratch_shapes)
    scratch_types = [s.get_array_aval() for s in scratch]

    def refs_of(found: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The kernel's arguments from one Ref per leaf."""
        inputs = tree_unflatten(in_tree, found[: len(values)])
        outputs = tree_unflatten(out_tree, found[len(values) : len(values) + len(outs)])
        rest = tree_unflatten(scratch_tree, found[len(values) + len(outs) :])
        results = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return ((*inputs, *results), rest) if isinstance(rest, dict) else ((*inputs, *results, *rest), {})

    types = [*[x.aval for x in scalars], *[m.block for m in (*blocks, *results)], *scratch_types]
    body_trace = _trace_kernel(kernel, title, refs_of, spec.grid, types, len(scalars))
    if debug:
        print(f"\nThe program of the kernel in pallas_call {title}:\n{body_trace.body.program}")
    _check_aliases(aliases, values, out_types, with_paths, outs)

    first_values = {o: values[i] for i, o in aliases.items()}
    with as_one_kernel(written_kernel(title, spec.grid, blocks, results, scratch_types, body_trace.body.program, cost)):
        initial = [
            first_values[o] if o in first_values else uninitialized_array(t.shape, t.dtype)
            for o, t in enumerate(out_types)
        ]
        arrays = [m.pad(x) for m, x in zip((*blocks, *results), (*operands, *initial), strict=True)]
        memory = [uninitialized_array(t.shape, t.dtype) for t in scratch_types]
        last = _run(body_trace, spec.grid, (*blocks, *results), scalars, arrays, memory)
        cut_results = [m.trim(x) for m, x in zip(results, last[len(blocks) :], strict=True)]
    return tree_unflatten(out_tree, cut_results)


def _mappings(
    specs: Any,
    what: str,
    tree: Any,
    of: str,
    arrays: list[tuple[str, ShapedArray]],
    grid: Any,
    scalars: Sequence[Array],
) -> list[BlockMapping]:
    """A mapping per array. ValueError if the tree of specs differs from that of the arrays."""
    types = [x.aval for x in scalars]
    if specs is no_block_spec:
        return [mapping_of(BlockSpec(), t, origin, grid, types) for origin, t in arrays]
    spec_leaves, found_tree = tree_flatten(specs)
    expected_tree: PyTreeDef = tree_flatten(tree)[1]
    if found_tree != expected_tree:
        differences = [
            f"    * {f'at {keystr(path)}, ' if path else ''}{what} is a {a} but {of} is a {b}, so {why}"
            for path, a, b, why in equality_errors(specs, tree)
        ]
        raise ValueError(
            "\n".join([f"Pytree for {what} and {of} do not match. Give one BlockSpec per array:", *differences])
        )
    specs_of = [BlockSpec() if s is no_block_spec else s for s in spec_leaves]
    return [mapping_of(s, t, origin, grid, types) for s, (origin, t) in zip(specs_of, arrays, strict=True)]


def _trace_kernel(
    kernel: Callable[..., None],
    title: str,
    refs_of: Any,
    grid: Sequence[Any],
    types: Sequence[ShapedArray],
    scalars: int,
) -> _Kernel:
    axes = len(grid)
    bounds = [i for i, size in enumerate(grid) if isinstance(size, Array)]
    written_blocks: tuple[bool, ...] = ()

    def last_blocks(*args: Any) -> list[Any]:
        nonlocal written_blocks
        indices, sizes, blocks = args[:axes], list(grid), args[axes + len(bounds) :]
        for i, size in zip(bounds, args[axes:], strict=False):
            sizes[i] = size
        refs = [Ref(block) for block in blocks]
        positional, named_refs = refs_of(refs)
        with at_position(indices, sizes):
            result = kernel(*positional, **named_refs)
        if tree_flatten(result)[0]:
            raise ValueError(
                f"The kernel function in the pallas_call {title} should return None. It returns {result}. Write to the Refs of its results."
            )
        last = [ref.held() for ref in refs[scalars:]]
        written_blocks = tuple(new is not old for new, old in zip(last, blocks[scalars:], strict=True))
        return last

    every = [INDEX] * (axes + len(bounds)) + list(types)
    body = trace_body(last_blocks, tree_flatten((0,) * len(every))[1], every, title)
    # Scalars may be Python's, which became arrays while the kernel was traced.
    captured_arrays = [x for x in map(as_array, body.consts) if x.ndim or isinstance(x, Tracer)]
    if captured_arrays:
        type_list = ", ".join(x.aval.str_short() for x in captured_arrays)
        raise ValueError(
            f"The kernel function in the pallas_call {title} captures constants [{type_list}]. You should pass them as inputs."
        )
    return _Kernel(body, written_blocks)


def _check_aliases(
    aliases: dict[int, int], values: Sequence[Array], outs: Sequence[ShapedArray], in_paths: Any, out_paths: Any
) -> None:
    for i, o in aliases.items():
        intro = f"input_output_aliases contains the mapping '{i}:{o}'"
        if i not in range(len(values)):
            raise ValueError(f"{intro} with input index {i} outside the range [0, {len(values)})")
        if o not in range(len(outs)):
            raise ValueError(f"{intro} with output index {o} outside the range [0, {len(outs)})")
        given, out_type = values[i].aval, outs[o]
        if given.shape != out_type.shape or given.dtype != out_type.dtype:
            raise ValueError(
                f"{intro} referring to input{keystr(in_paths[i][0])} with abstract value {given} and to output{keystr(out_paths[o][0])} "
                f"with a different abstract value {out_type}. Give the output the input's shape and dtype."
            )


def _run(
    kernel: _Kernel,
    grid: Sequence[Any],
    mappings: Sequence[BlockMapping],
    scalars: Sequence[Array],
    arrays: Sequence[Array],
    memory: Sequence[Array],
) -> list[Array]:
    """The arrays after all steps. Those that the kernel writes, and the scratch memory, go from step to step."""
    all_arrays = [*arrays, *memory]
    changing_places = [i for i, is_written in enumerate(kernel.written) if is_written]
    bounds = [jnp.int32(size) for size in grid if isinstance(size, Array)]
    program = kernel.body.program

    def step(indices: Sequence[Array], state: Sequence[Array]) -> list[Array]:
        now = list(all_arrays)
        for i, x in zip(changing_places, state, strict=True):
            now[i] = x
        places = [m.starts(indices, scalars) for m in mappings]
        blocks = [m.read(x, place) for m, x, place in zip(mappings, now, places, strict=False)]
        last = eval_program(program, [*kernel.body.consts, *indices, *bounds, *scalars, *blocks, *now[len(arrays) :]])
        return [
            mappings[i].write(now[i], as_array(last[i]), places[i]) if i < len(mappings) else as_array(last[i])
            for i in changing_places
        ]

    state = _make_varying([all_arrays[i] for i in changing_places], [*scalars, *arrays])
    if not grid:
        state = step((), state)
    else:
        count: Any = math.prod(grid) if not bounds else _product(grid)
        state = lax.fori_loop(np.int32(0), count, lambda i, state: step(unravel(i, grid), state), state)
    last = list(arrays)
    for i, x in zip(changing_places, state, strict=True):
        if i < len(last):
            last[i] = x
    return last


def _product(sizes: Sequence[Any]) -> Array:
    count = jnp.int32(1)
    for size in sizes:
        count = count * jnp.int32(size)
    return count


def _make_varying(state: list[Array], operands: Sequence[Array]) -> list[Array]:
    """Values that begin a loop, varying over the mesh axes over which the operands do."""
    axes = frozenset[str]().union(*[x.aval.vma for x in operands])
    return [
        as_array(bind(pvary_op, x, axes=tuple(sorted(axes - x.aval.vma)))) if axes - x.aval.vma else x for x in state
    ]
