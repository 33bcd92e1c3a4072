"""`Shown`: how JAX's programs show an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from shardwise.base.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from shardwise.ir.program import Equation


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """An op's name and params as JAX prints them.

    name        JAX's name of the primitive if it is not the op's, or a function that returns it for the current dialect.
    name_of     ``(eqn) -> str``: JAX's name where it depends on the equation.
    aliases     other names of the primitive, as in ``<alias>_p``.
    renamed     JAX's names of params, by ours. Programs among them are known to interpreters under these names, too.
    hidden      params that JAX does not have.
    absent      params that JAX does not have, each with the value at which the op does what JAX's does, or a function that gives it
                for a number of operands.
    empty       params that are shown as None where the op has no value for them.
    change      ``(eqn, shown) -> shown``: further changes.
    whole       ``(params) -> shown``: all params, in place of renaming them one by one.
    parts       ``(values, params) -> result``: the op bound as the ops that JAX has in its place, in programs that are traced to be shown;
                None where JAX has the op itself.
    text        ``(eqn, name, results) -> str``: the whole equation, where it is not printed as others are. `name` gives that of an operand.
    """

    name: str | Callable[[], str] | None = None
    name_of: Callable[[Equation], str] | None = None
    aliases: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    absent: Mapping[str, Any] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    change: Callable[[Equation, dict[str, Any]], dict[str, Any]] | None = None
    whole: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    parts: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None
    text: Callable[[Equation, Callable[[Any], str], list[str]], str] | None = None

    def params(self, eqn: Equation) -> dict[str, Any]:
        """The params of an equation that JAX shows, under its names."""
        if self.whole is not None:
            return self.whole(eqn.params)
        own_params = self.without_absent(eqn.params)
        shown_params = {
            self.renamed.get(k, k): v for k, v in own_params.items() if v is not None and k not in self.hidden
        }
        for key in self.empty:
            shown_params.setdefault(key, None)
        return shown_params if self.change is None else self.change(eqn, shown_params)

    def without_absent(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The params but those that JAX does not have where these make no difference."""
        return {k: v for k, v in params.items() if k not in self.absent or v != self.absent[k]}


AS_IT_IS = Shown()
