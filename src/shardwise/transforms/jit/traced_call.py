"""One trace of a jitted function."""

from __future__ import annotations

from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import PyTreeDef, keystr, tree_flatten_with_path, tree_unflatten
from shardwise.ir import Program


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One trace of a function: its program, captured values, and the trees of arguments and results."""

    program: Program
    consts: tuple[Any, ...]
    in_tree: PyTreeDef
    out_tree: PyTreeDef
    names: tuple[str, ...]
    cacheable: bool

    def result_name(self, i: int) -> str:
        """The name of a result in messages: ``result['w']``."""
        try:
            whole = tree_unflatten(self.out_tree, self.program.out_types)
        except Exception:  # a class of the user's that takes arrays alone
            return f"result leaf {i}"
        return "result" + keystr(tree_flatten_with_path(whole)[0][i][0])
