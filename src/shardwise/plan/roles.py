"""The roles of arguments in a step: its state (weights, moments), its batch, or something else.

In: a compiled program. Out: its `Argument`s. Nothing is known of names: results of the same type and layout as an argument replace it
in the next step (state); all others are batches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes
from shardwise.engine.data_free import DataFree
from shardwise.ir import Var
from shardwise.ops.devices.layout import spec_axes
from shardwise.sharding import NamedSharding

_NUMBER = re.compile(r"\d+")
_LAST = re.compile(r"(\.\w+|\[[^\]]*\])$")


@dataclass(frozen=True, slots=True)
class Argument:
    """Leaves of the arguments that lie alike: a weight of every layer, and the moments that belong to it.

    Attributes:
        names: their paths.
        leaves: their positions among the leaves of the call.
        shape: global.
        dims: per dim the mesh axes that split it.
        nbytes: of all of them together, over all devices.
        state: whether results replace them in the next step.
        batch_dim: the dim along which a batch lies; None if they are no batch.
    """

    names: tuple[str, ...]
    leaves: tuple[int, ...]
    shape: tuple[int, ...]
    dims: DimAxes
    nbytes: int
    state: bool
    batch_dim: int | None = None


def follow(executable: DataFree) -> dict[int, int]:
    """By result, the input that it replaces in the next step: the first one of the same type and layout, donated ones first."""
    program = executable.program
    free: dict[object, list[int]] = {}
    owned_inputs = set(executable.owned)
    order = sorted(range(program.num_consts, len(program.inputs)), key=lambda i: (i not in owned_inputs, i))
    for i in reversed(order):
        aval = program.inputs[i].aval
        free.setdefault((aval.shape, aval.dtype, executable.in_dims[i]), []).append(i)
    result_by_input: dict[int, int] = {}
    for k, (atom, dims) in enumerate(zip(program.outputs, executable.out_dims, strict=True)):
        waiting_inputs = free.get((atom.aval.shape, atom.aval.dtype, dims)) if isinstance(atom, Var) else None
        if waiting_inputs:
            result_by_input[k] = waiting_inputs.pop()
    return result_by_input


def arguments_of(executable: DataFree) -> tuple[Argument, ...]:
    """The arguments of the call, alike ones as one."""
    call, program = executable.user_call, executable.program
    assert call is not None
    replaced_inputs = set(follow(executable).values())
    tops = [parameter_of(name) for name in executable.names]
    batch = _batch_dims(executable, replaced_inputs, tops)
    places_by_argument: dict[object, list[int]] = {}
    for i in range(program.num_consts, len(program.inputs)):
        name, shape = executable.names[i], program.inputs[i].aval.shape
        tail = _LAST.search(name)
        key = batch.get(i), _NUMBER.sub("*", tail[1] if tail else name), shape, layout_of(executable, i)
        places_by_argument.setdefault(key, []).append(i)
    out = []
    for members in places_by_argument.values():
        first = members[0]
        aval, dims = program.inputs[first].aval, layout_of(executable, first)
        out.append(
            Argument(
                tuple(executable.names[i] for i in members),
                tuple(call.leaves[i] for i in members),
                aval.shape,
                dims,
                sum(program.inputs[i].aval.nbytes for i in members),
                any(i in replaced_inputs for i in members) and first not in batch,
                batch.get(first),
            )
        )
    return tuple(out)


def parameter_of(name: str) -> str:
    """The parameter of the function that a path begins with."""
    return re.split(r"[.\[]", name, maxsplit=1)[0]


def _batch_dims(executable: DataFree, replaced: set[int], tops: Sequence[str]) -> dict[int, int]:
    """By input of a batch the dim along which it lies.

    A parameter of the function is the model if results replace all of it, and it is donated or has several arrays; else the one with the
    most bytes is. Where results replace the model this is training, in which no batch is replaced. The batch's length is that of the
    array with the fewest dims, of integers if there are any; parameters belong to it if all of their arrays have a dim of that length.
    """
    program = executable.program
    members: dict[str, list[int]] = {}
    for i in range(program.num_consts, len(program.inputs)):
        members.setdefault(tops[i], []).append(i)
    nbytes = {top: sum(program.inputs[i].aval.nbytes for i in ids) for top, ids in members.items()}
    states = [
        top
        for top, ids in members.items()
        if replaced.issuperset(ids) and (len(ids) > 1 or set(executable.owned).issuperset(ids))
    ]
    model = max(states or nbytes, key=lambda top: nbytes[top], default="")
    trains = any(i in replaced for i in members.get(model, ()))
    others = [
        [i for i in ids if program.inputs[i].aval.ndim]
        for top, ids in members.items()
        if top != model and (states or nbytes[top] < nbytes[model]) and not (trains and any(i in replaced for i in ids))
    ]
    avals = {i: program.inputs[i].aval for ids in others for i in ids}
    if not avals:
        return {}
    least = min(avals, key=lambda i: (avals[i].dtype.kind != "i", avals[i].ndim))
    length = avals[least].shape[_split(layout_of(executable, least))]
    dim_by_place: dict[int, int] = {}
    for ids in others:
        if all(length in avals[i].shape for i in ids):
            split = {i: _split(layout_of(executable, i)) for i in ids}
            for i in ids:
                shape = avals[i].shape
                dim_by_place[i] = split[i] if shape[split[i]] == length else shape.index(length)
    return dim_by_place


def _split(dims: DimAxes) -> int:
    """The first dim that is split, or the first of all."""
    return next((d for d, axes in enumerate(dims) if axes), 0)


def layout_of(executable: DataFree, i: int) -> DimAxes:
    """Per dim of an input the mesh axes that split it, axes of size 1 included."""
    sharding = executable.in_sigs[i].sharding
    if isinstance(sharding, NamedSharding) and executable.in_sigs[i].committed:
        return spec_axes(sharding, executable.program.inputs[i].aval.ndim)[0]
    return executable.in_dims[i]
