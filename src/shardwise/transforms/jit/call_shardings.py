"""The demands of a `jit`'s options on its calls: shardings of arguments and results, the devices that these name, orders in memory.

In: options, and a call taken apart. Out: per leaf a `Sharding`, a `Layout` or an order, None where nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import tree_flatten, tree_leaves, tree_unflatten
from shardwise.engine.signature import Signature
from shardwise.sharding import Device, NamedSharding, Sharding, SingleDeviceSharding
from shardwise.sharding.derive import is_abstract
from shardwise.transforms.jit.abstract import Abstract
from shardwise.transforms.jit.abstract_meshes import named_devices
from shardwise.transforms.jit.binding import JitOptions
from shardwise.transforms.jit.jit_layouts import asked_layouts, check_arguments, result_orders
from shardwise.transforms.jit.jit_shardings import check_outputs, context_mesh, flat_shardings, is_spec_leaf, is_whole
from shardwise.transforms.jit.traced_call import TracedCall
from shardwise.transforms.tracing import BoundCall


@dataclass(frozen=True, slots=True)
class CallShardings:
    """The shardings of the calls of one jitted function."""

    options: JitOptions

    def of(self, call: BoundCall, traced: TracedCall) -> tuple[list[Sharding | None], list[Sharding | None]]:
        """The shardings of the arguments and of the results, which are checked against the traced program."""
        ins = self.of_arguments(call)
        options = self.options
        results = self._results(traced)
        outs = flat_shardings(options.out_shardings, results, "out_shardings", options.api, "out_shardings")
        check_outputs(traced.program.out_types, outs, traced.result_name)
        return ins, outs

    def _results(self, traced: TracedCall) -> Any:
        """The tree that `out_shardings` is a prefix of: a list of types where it is one for all results.

        Otherwise types stand for the results, in the user's classes: some look at the shapes of their leaves. Others take arrays
        alone, so that none are made without need.
        """
        types = list(traced.program.out_types)
        return types if is_whole(self.options.out_shardings) else tree_unflatten(traced.out_tree, types)

    def of_arguments(self, call: BoundCall) -> list[Sharding | None]:
        """Per argument; None where nothing is asked."""
        options = self.options
        if options.device is not None:
            return [SingleDeviceSharding(options.device)] * len(call.leaves)
        return flat_shardings(options.in_shardings, call.dynamic, "in_shardings", options.api, "in_shardings") + [
            None
        ] * (len(call.leaves) - len(tree_flatten(call.dynamic)[0]))

    def abstract(self, call: BoundCall, ins: Sequence[Any] | None = None) -> list[NamedSharding]:
        """The call's shardings over an `AbstractMesh`, for arguments (`ins`: the resolved in_shardings) and results."""
        ins = self.of_arguments(call) if ins is None else ins
        given = [x.over for x in call.leaves if isinstance(x, Abstract)]
        return [s for s in (*given, *ins, *self._out_leaves()) if is_abstract(s)]

    def named_devices(self, sigs: Sequence[Signature], ins: Sequence[Any]) -> tuple[Device, ...] | None:
        """The devices that committed arguments, shardings or the mesh in context name."""
        return named_devices(sigs, (*ins, *self._out_leaves()), context_mesh(self.options.api))

    def _out_leaves(self) -> list[Any]:
        return tree_leaves(self.options.out_shardings, is_leaf=is_spec_leaf)

    def layouts(self, call: BoundCall) -> list[Any] | None:
        """The layouts that in_shardings ask for, per leaf; None if there are none."""
        given_layouts = asked_layouts(self.options.in_shardings, call.dynamic)
        return None if given_layouts is None else given_layouts + [None] * (len(call.leaves) - len(given_layouts))

    def orders(
        self, call: BoundCall, sigs: Sequence[Signature], traced: TracedCall
    ) -> list[tuple[int, ...] | None] | None:
        """The orders of the results in memory, after a check of the arguments'; None if they are all the default."""
        given_layouts = self.layouts(call)
        if given_layouts is not None:
            check_arguments(given_layouts, sigs, traced.names)
        return result_orders(asked_layouts(self.options.out_shardings, self._results(traced)), traced.program)
