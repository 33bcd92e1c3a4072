"""How loops and branches use random keys: their `Op.keys`."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.base.errors import KeyReuseError
from shardwise.ir import Equation, source_text
from shardwise.ir.key_uses import KeyUses, Mask, UsesOf, union


def cond_keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    """A branch: the keys that any branch consumes, and those that all hand on."""
    branches: Sequence[KeyUses] = [uses_of(b) for b in eqn.params["branches"]]
    sinks: dict[int, Mask] = {}
    for branch in branches:
        for i, mask in branch.sinks.items():
            sinks[i + 1] = union(sinks.get(i + 1, False), mask)
    sources = frozenset().union(*(b.sources for b in branches))
    shared_forwards = set.intersection(*(set(b.forwards.items()) for b in branches))
    return KeyUses(sinks, sources, {out: i + 1 for out, i in shared_forwards})


def _again(eqn: Equation, part: str, why: str) -> KeyReuseError:
    where = f" at {source_text(eqn.source)}" if eqn.source else ""
    return KeyReuseError(
        f"{eqn.op.name} {part} leads to key reuse when it runs again{where}: {why}. Split the key, or fold the step's number into it "
        "with random.fold_in."
    )


def scan_keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    """A loop over rows: its body may not use the same key in each step."""
    consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    uses = uses_of(eqn.params["body"])
    if any(i < consts for i in uses.sinks):
        raise _again(eqn, "body function", "it consumes a key that is the same in each step")
    sink_carries = {i - consts for i in uses.sinks if consts <= i < consts + carry}
    if not sink_carries <= {i for i in uses.sources if i < carry}:
        raise _again(eqn, "body function", "it consumes a key of its carry and hands on no fresh one in its place")
    return uses


def while_keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    """A loop: neither cond nor body may use the same key in each step."""
    cond_consts, body_consts = eqn.params["cond_consts"], eqn.params["body_consts"]
    cond, body = uses_of(eqn.params["cond"]), uses_of(eqn.params["body"])
    for part, uses, consts in (("cond function", cond, cond_consts), ("body function", body, body_consts)):
        if any(i < consts for i in uses.sinks):
            raise _again(eqn, part, "it consumes a key that is the same in each step")
        if not {i - consts for i in uses.sinks} <= body.sources:
            raise _again(eqn, part, "it consumes a key of the carry for which the body hands on no fresh one")
    by_cond, by_body = ({i - n for i in u.sinks} for u, n in ((cond, cond_consts), (body, body_consts)))
    if by_cond & by_body:
        raise _again(eqn, "cond and body functions", "both consume the same key")
    sinks = {i + cond_consts: mask for i, mask in body.sinks.items()}
    sinks |= {i + body_consts: mask for i, mask in cond.sinks.items()}
    return KeyUses(sinks, body.sources, {out: i + cond_consts for out, i in body.forwards.items()})
