"""The messages of `jax_explain_cache_misses`: why a call traces its function again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shardwise.base.tracebacks import user_frame
from shardwise.base.tree import equality_errors, keystr, tree_unflatten
from shardwise.base.wrapping import code_of, name_of
from shardwise.ir import ShapedArray
from shardwise.transforms.tracing import BoundCall, argument_names

# The source lines of functions traced so far, to recognise a function that is redefined for each call.
_lines: dict[str, int] = {}


def explain_miss(
    fun: Callable[..., Any], call: BoundCall, key: tuple[Any, ...], seen: Iterable[tuple[Any, ...]]
) -> str:
    """The message about a call whose key is not in `seen`: the kind of miss, and the differences from the closest key.

    Keys are (context token, structure of the arguments, static arguments, meshes, *types); `JitWrapped._trace` makes them.
    """
    frame = user_frame()
    at = f" at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
    lines = [f"TRACING CACHE MISS{at}:"]
    keys = list(seen)
    if not keys:
        return "\n".join([*lines, *_first(fun)])
    names = argument_names(fun, call.args, call.dynamic_kwargs, tuple(i for i, _ in call.statics.args))
    closest = min(keys, key=lambda other: sum(a != b for a, b in zip(key[:4], other[:4], strict=True)))
    reasons = _differences(key, closest, names)
    return "\n".join(
        [*lines, f"  for {_name(fun)}", "  all previously seen cache keys differ. From the closest one:", *reasons]
    )


def _name(fun: Callable[..., Any]) -> str:
    code = code_of(fun)
    name = name_of(fun)
    return name if code is None else f"{name} defined at {code.co_filename}:{code.co_firstlineno}"


def _first(fun: Callable[..., Any]) -> list[str]:
    name = _name(fun)
    _lines[name] = _lines.get(name, 0) + 1
    lines = [f"  never seen function: {name}"]
    if _lines[name] > 1:
        lines.append(
            "  but seen another function defined on the same line: if it is made anew for each call, make it once"
        )
    return lines


def _differences(key: tuple[Any, ...], other: tuple[Any, ...], names: Sequence[str]) -> list[str]:
    token, tree, statics, meshes, *types = key
    other_token, other_tree, other_statics, other_meshes, *other_types = other
    lines: list[str] = []
    if token is not other_token:
        lines.append("  Tracing context doesn't match: a setting or a context manager differs:")
        lines += [f"  * {name}: now {now!r} and before {then!r}" for name, now, then in token.differences(other_token)]
    if tree != other_tree:
        lines.append("  different input pytree:")
        lines += [
            f"  * at input path {keystr(path)}, now {now} and before {then}, so {why}".replace(
                str(_Leaf), "pytree leaf"
            )
            for path, now, then, why in equality_errors(_dummy(tree), _dummy(other_tree))
        ]
    if statics != other_statics:
        lines.append(
            f"  different static arguments: now {_statics_text(statics)} and before {_statics_text(other_statics)}"
        )
    if tree == other_tree and types != other_types:
        lines.append("  different input types:")
        pairs = zip(names, types, other_types, strict=False)
        lines += [f"  * at {name}, now {_type(t)} and before {_type(o)}" for name, t, o in pairs if t is not o]
    if meshes != other_meshes:
        lines.append("  different meshes of the arguments")
    return lines


class _Leaf:
    """The place of a leaf in an argument."""


def _dummy(tree: Any) -> Any:
    return tree_unflatten(tree, [_Leaf()] * tree.num_leaves)


def _type(t: ShapedArray) -> str:
    return t.str_short() + (" (weak type)" if t.weak_type else "")


def _statics_text(statics: Any) -> str:
    given = [*statics.args, *statics.kwargs]
    return ", ".join(f"{name}={x.value!r}" for name, x in given) or "none"
