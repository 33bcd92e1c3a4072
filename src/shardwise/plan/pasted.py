"""Layouts as code to paste: a mesh, a PartitionSpec for each argument, a policy.

In: a `Step` and a `StepLayout` of it. Out: Python's text, of plain containers where the arguments lie in such, else by path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.config import config
from shardwise.base.shapes import DimAxes
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.ir import source_text
from shardwise.plan.roles import parameter_of
from shardwise.plan.step import POLICIES, Step, StepLayout, spec_of
from shardwise.sharding import AxisType, Mesh

WIDTH = 100
_INDENT = "    "


class _Code(str):
    """Text that stands for itself."""

    def __repr__(self) -> str:
        return str(self)


def spec_code(dims: DimAxes) -> str:
    """``P('data', None, ('x', 'y'))``."""
    return f"P({', '.join(map(repr, spec_of(dims).partitions))})"


def code_of(step: Step, layout: StepLayout) -> str:
    """The layout as Python code."""
    lines = []
    if layout.mesh and step.mesh is not None:
        names, sizes = zip(*layout.mesh, strict=True)
        lines.append(f"mesh = jax.make_mesh({tuple(sizes)}, {tuple(names)}{_types_code(step.mesh)})")
    new = dict(layout.dims)
    tops = dict.fromkeys(parameter_of(name) for i in new for name in step.arguments[i].names)
    before: dict[str, str] = {}  # specs by their text: moments lie as the weights do
    for top in tops:
        name, specs = f"{top}_specs", _specs_of(step, top, new)
        whole = "\n".join(specs)
        if whole in before:
            lines.append(f"{name} = {before[whole]}")
            continue
        before[whole] = name
        lines += [f"{name} = {specs[0]}", *specs[1:]]
    batch_arguments = [a for i, a in enumerate(step.arguments) if i in new and a.batch_dim is not None]
    for a in batch_arguments:
        old, now = a.dims[a.batch_dim or 0], new[step.arguments.index(a)][a.batch_dim or 0]
        if old and old != now and step.constrained:
            lines.append(f"# constraints that split the batch over {old}: over {now}")
    if layout.keep_batch:
        for pin in step.pins_of(layout):
            where = f" at {source_text(pin.source)}" if pin.source else ""
            lines.append(f"# {pin.var.aval.str_short()} of {pin.op}{where}:")
            lines.append(f"x = jax.lax.with_sharding_constraint(x, {spec_code(pin.dims)})")
    if layout.remat:
        is_known = POLICIES.get(layout.remat) is step.policies[layout.remat]
        policy = f"jax.checkpoint_policies.{layout.remat}" if is_known else layout.remat
        of = "jax.checkpoint around the function of each scan" if step.bodies else "every jax.checkpoint"
        lines.append(f"policy = {policy}  # of {of}")
    if layout.batch != 1:
        lines.append(f"batch = {_batch_text(step, layout)}")
    return "\n".join(lines)


def _types_code(mesh: Mesh) -> str:
    """The axes' types as an argument of make_mesh, where the dialect would give other ones."""
    usual = AxisType[config.dialect.meshes.make_mesh_axis_type]
    if all(kind is usual for kind in mesh.axis_types):
        return ""
    kinds = [f"jax.sharding.AxisType.{kind.name}" for kind in mesh.axis_types]
    alike = len(set(kinds)) == 1
    return f", axis_types=({kinds[0]},) * {len(kinds)}" if alike else f", axis_types=({', '.join(kinds)})"


def _batch_text(step: Step, layout: StepLayout) -> str:
    sizes = {a.shape[a.batch_dim] for a in step.arguments if a.batch_dim is not None}
    times = f"{layout.batch} times as much"
    return f"{int(min(sizes) * layout.batch)}  # {times}" if len(sizes) == 1 else f"...  # {times}"


def _specs_of(step: Step, top: str, new: dict[int, DimAxes]) -> list[str]:
    """The specs of one parameter of the function, all its arrays together."""
    leaf_dims = {
        leaf: (name, new.get(i, a.dims))
        for i, a in enumerate(step.arguments)
        for leaf, name in zip(a.leaves, a.names, strict=True)
    }
    tree = _tree_of(step, top, leaf_dims)
    if tree is not None:
        return _lines(tree)
    table = {name: _Code(spec_code(dims)) for name, dims in leaf_dims.values() if parameter_of(name) == top}
    return ["{  # by path", *[f"{_INDENT}{k!r}: {v}," for k, v in table.items()], "}"]


def _tree_of(step: Step, top: str, leaf_dims: dict[int, tuple[str, DimAxes]]) -> Any:
    """The argument's tree with specs for its arrays; None if other containers than dicts, lists and tuples are in it."""
    leaves, tree = step.flat_arguments()
    specs: list[Any] = [_Code(spec_code(leaf_dims[i][1]) if i in leaf_dims else "P()") for i in range(len(leaves))]
    args, kwargs = tree_unflatten(tree, specs)
    own = {i for i, (name, _) in leaf_dims.items() if parameter_of(name) == top}
    at = 0
    for arg in (*args, *[kwargs[k] for k in sorted(kwargs)]):
        count = len(tree_flatten(arg)[0])
        if any(at <= i < at + count for i in own):
            return arg if _is_plain(arg) else None
        at += count
    return None


def _is_plain(tree: Any) -> bool:
    if isinstance(tree, _Code) or tree is None:
        return True
    if type(tree) is dict:
        return all(isinstance(k, (str, int)) and _is_plain(v) for k, v in tree.items())
    return type(tree) in (list, tuple) and all(map(_is_plain, tree))


def _lines(tree: Any) -> list[str]:
    """The tree's text: in one line where it is short, else an item a line; equal items of a list once."""
    whole = repr(tree)
    if len(whole) <= WIDTH - len(_INDENT) and not (isinstance(tree, dict) and len(tree) > 2):
        return [whole]
    if type(tree) is list and len(tree) > 1 and all(repr(x) == repr(tree[0]) for x in tree):
        head, *rest = _lines([tree[0]])
        return [*([head] if rest else []), *rest[:-1], f"{rest[-1] if rest else head} * {len(tree)}"]
    if isinstance(tree, dict):
        items: Sequence[tuple[str, Any]] = [(f"{k!r}: ", v) for k, v in tree.items()]
        open_bracket, close_bracket = "{", "}"
    else:
        items = [("", v) for v in tree]
        open_bracket, close_bracket = ("[", "]") if isinstance(tree, list) else ("(", ")")
    lines = [open_bracket]
    for prefix, value in items:
        head, *rest = _lines(value)
        lines += [f"{_INDENT}{prefix}{head}", *[_INDENT + line for line in rest]]
        lines[-1] += ","
    return [*lines, close_bracket]
