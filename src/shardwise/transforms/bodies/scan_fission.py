"""Fission of scans: the body is cut in three parts, of which only the middle one stays a loop.

    before   the equations that depend on scanned entries alone: computed for all steps at once, ahead of the loop
    loop     the equations between one carry and the next
    after    the equations that only stacked outputs need: computed for all steps at once, from values that the loop stacks

Carries that only accumulate a sum (the gradients of captured values) leave the loop, too: the sum becomes one reduction over
the steps; a sum of matrix products becomes one matrix product, of whatever size, if its factors may be kept for all steps. A step
costs a call per op, so small steps gain most; large ones gain nothing and would need more memory, so they stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.ir import Equation, Literal, Program, Replay, Var, bind, infer_types, literal, subprograms, trace_program
from shardwise.ops.control.scan import scan_p
from shardwise.ops.devices.barrier import optimization_barrier_p
from shardwise.ops.elementwise.binary import add_p, mul
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.products.contract import dot_general_p
from shardwise.ops.reductions.reduce import reduce_sum
from shardwise.ops.rules.convert import as_array
from shardwise.runtime import costs
from shardwise.transforms.bodies.derived_bodies import in_front
from shardwise.transforms.interpreters.batch_trace import batch_program


def split_scan(eqn: Equation, devices: int) -> Program | None:
    """The program of a scan's equation on `devices` devices after fission, or None if there is nothing to gain."""
    params = eqn.params
    if params["length"] < costs.FISSION_SHORTEST or not _plain(params["body"]):
        return None
    cut = _Cut(params["body"], params["num_consts"], params["num_carry"], params["length"], devices)
    if not cut.worthwhile:
        return None
    run = _Run(cut, params)
    with Replay() as replay:
        replay.source = eqn.source
        try:
            program, consts = trace_program(run, [a.aval for a in eqn.inputs], params["body"].name)
        except NotImplementedError:  # of an op that cannot run for all steps at once
            return None
    return None if consts else program


def _plain(body: Program) -> bool:
    """Whether the body's values are typed without meshes, and no equation has effects."""
    values = [*body.inputs, *[v for e in body.equations for v in e.outputs]]
    return all(v.aval.mesh is None for v in values) and not any(e.op.has_effects(e.params) for e in body.equations)


def _says_where(e: Equation) -> bool:
    """Whether the types that an equation's operands and params give have the devices over which its results vary."""
    if not any(v.aval.vma for v in e.outputs):
        return True
    out_types = infer_types(e.op, tuple(a.aval for a in e.inputs), dict(e.params))
    return all(v.aval.vma == t.vma for v, t in zip(e.outputs, out_types, strict=True))


class _Cut:
    """The part of each equation of a body."""

    def __init__(self, body: Program, num_consts: int, num_carry: int, length: int, devices: int) -> None:
        self.body = body
        self.length = length
        self.devices = devices
        end = num_consts + num_carry
        self.consts, self.carry, self.xs = body.inputs[:num_consts], body.inputs[num_consts:end], body.inputs[end:]
        self.ys = body.outputs[num_carry:]
        self.unsized: set[Equation] = set()  # sums of products, and the products: neither is made step by step
        self.sums = self._sums()
        # Operands of collectives: a device reduces them within the step, before they are summed over devices.
        exchanged_values: set[Any] = {a for e in body.equations if e.op.collective is not None for a in e.inputs}
        steady: set[Any] = set(self.consts)
        early: set[Any] = {*self.consts, *self.xs}
        self.before: list[Equation] = []
        for e in body.equations:
            if exchanged_values.intersection(e.outputs):
                continue
            same = all(a in steady for a in e.inputs if isinstance(a, Var))
            # User code is called once for all steps if they agree, or once per step; never with all steps at once.
            if self._once(e) if same else all(a in early for a in e.inputs if isinstance(a, Var)) and self._small(e):
                self.before.append(e)
                early.update(e.outputs)
                if same:
                    steady.update(e.outputs)
        self.steady, self.early = steady, early
        self._keep_spreads()
        # Equations that the remaining carries need stay in the loop, and so do those whose results are too large to keep for all steps.
        rest = [e for e in body.equations if e not in self.before]
        needed_atoms: set[Any] = {a for i, a in enumerate(body.outputs[:num_carry]) if i not in self.sums}
        self.loop: list[Equation] = []
        self.after: list[Equation] = []
        for e in reversed(rest):
            if any(v in needed_atoms for v in e.outputs) or not self._small(e):
                self.loop.append(e)
                needed_atoms.update(e.inputs)
            elif not self._only_sums(e):
                self.after.append(e)
        self.loop.reverse()
        self.after.reverse()
        # Values that equations after the loop read from it: results, and carries as they enter a step.
        inside = {*self.carry, *[v for e in self.loop for v in e.outputs]}
        used = [a for e in self.after for a in e.inputs] + list(self.ys) + list(self.sums.values())
        self.stacked = tuple(dict.fromkeys(a for a in used if isinstance(a, Var) and a in inside))
        wanted_atoms = {a for e in self.loop for a in e.inputs} | {
            a for i, a in enumerate(body.outputs[:num_carry]) if i not in self.sums
        }
        self.given = tuple(
            v for v in (*self.xs, *[v for e in self.before for v in e.outputs]) if v in wanted_atoms and v not in steady
        )
        self.fixed = tuple(v for e in self.before for v in e.outputs if v in wanted_atoms and v in steady)

    def _keep_spreads(self) -> None:
        """Leave cheap values in the loop: recomputing a row that is made from a number, say, is faster than reading it."""
        read = {*self.ys, *self.sums.values()}
        for e in reversed(self.before):
            result_size = max(v.aval.size for v in e.outputs)
            same = e.outputs[0] in self.steady
            given = sum(a.aval.size for a in e.inputs if a in self.early and (same or a not in self.steady))
            quick = e.op.emit is not None and e.op.emit.cost < costs.FUSED_SAVED
            if (
                quick
                and result_size >= max(costs.FISSION_SPREAD, 2 * given)
                and not read.intersection((*e.outputs, *self.steady))
            ):
                self.before.remove(e)
            else:
                read.update(e.inputs)

    def _sums(self) -> dict[int, Any]:
        """Carries that each step adds a value to and that nothing else reads; and the added values."""
        uses: dict[Any, int] = {}
        for a in (*[a for e in self.body.equations for a in e.inputs], *self.body.outputs):
            uses[a] = uses.get(a, 0) + 1
        makers = {v: e for e in self.body.equations for v in e.outputs}
        sums: dict[int, Any] = {}
        for i, v in enumerate(self.carry):
            out = self.body.outputs[i]
            e = makers.get(out) if isinstance(out, Var) else None
            if e is None or e.op is not add_p or v not in e.inputs or uses[v] != 1 or uses[out] != 1:
                continue
            a, b = e.inputs
            other = b if a is v else a
            if not isinstance(other, Var) or other.aval.shape != v.aval.shape or v.aval.dtype.kind not in "fc":
                continue
            product = makers.get(other)
            if self._few(v):
                sums[i] = other
            elif product is not None and uses[other] == 1 and self._keeps_factors(product) and self._plain(e):
                sums[i] = other
                self.unsized |= {product, e}
        return sums

    def _keeps_factors(self, e: Equation) -> bool:
        return e.op is dot_general_p and self._plain(e) and all(map(self._few, e.inputs))

    def _only_sums(self, e: Equation) -> bool:
        return any(self.body.outputs[i] in e.outputs for i in self.sums)

    def _few(self, v: Any) -> bool:
        return v.aval.size * (self.devices if v.aval.vma else 1) * self.length <= costs.FISSION_LARGEST

    def _small(self, e: Equation) -> bool:
        few = e in self.unsized or all(map(self._few, (*e.inputs, *e.outputs)))
        return few and not e.op.calls_user and self._plain(e)

    def _once(self, e: Equation) -> bool:
        """Whether an equation whose operands are the same in all steps runs once, ahead of the loop."""
        return e.op.calls_user or (self._plain(e) and all(v.aval.nbytes <= costs.HOISTED_BYTES for v in e.outputs))

    def _plain(self, e: Equation) -> bool:
        # A barrier keeps recomputed values from being computed early. Collectives stay where the partitioner put them.
        moves = e.op is not optimization_barrier_p and e.op.collective is None and _says_where(e)
        return moves and not any(True for _ in subprograms(e.params))

    @property
    def worthwhile(self) -> bool:
        """Whether a step has fewer calls than before: an op is one, and so is a value that is stacked."""
        was = len(self.body.equations) + len([y for y in self.ys if isinstance(y, Var)])
        return len(self.loop) + len(self.stacked) < was


class _Run:
    """The three parts, one after the other; called with tracers of the equation's operands."""

    def __init__(self, cut: _Cut, params: Any) -> None:
        self.cut = cut
        self.params = params

    def __call__(self, *operands: Any) -> list[Any]:
        cut, body = self.cut, self.cut.body
        # Each value and its dim over the steps, None where they share it.
        values: dict[Any, tuple[Any, int | None]] = {}
        carry_end = len(cut.consts) + len(cut.carry)
        values.update({v: (x, None) for v, x in zip(cut.consts, operands, strict=False)})
        values.update({v: (x, 0) for v, x in zip(cut.xs, operands[carry_end:], strict=True)})
        init = operands[len(cut.consts) : carry_end]
        products = self._summed_products()
        first = [e for e in cut.before if e not in products.values()]
        self._at_once(first, [v for e in first for v in e.outputs], values)
        finals = self._loop(init, values)
        later = [e for e in cut.after if e not in products.values()]
        factors = [a for e in products.values() for a in e.inputs]
        wanted_vars = [v for v in (*cut.ys, *cut.sums.values(), *factors) if isinstance(v, Var) and v not in products]
        self._at_once(later, [v for v in wanted_vars if v not in values], values)
        for i, v in cut.sums.items():
            total = self._product(products[v], values) if v in products else self._sum(*values[v])
            finals[i] = bind(add_p, init[i], convert(total, init[i].aval.dtype, init[i].aval.weak_type))
        outs = [finals[i] for i in range(len(cut.carry))] + [self._stack_output(y, values) for y in cut.ys]
        types = [*[v.aval for v in cut.carry], *[a.aval for a in cut.ys]]
        assert len(outs) == len(body.outputs)
        return [convert(x, t.dtype, t.weak_type) for x, t in zip(outs, types, strict=True)]

    def _at_once(self, equations: Sequence[Equation], outputs: Sequence[Var], values: dict[Any, Any]) -> None:
        """Evaluate equations for all steps; their results enter `values`."""
        outputs = tuple(dict.fromkeys(outputs))
        if not equations:
            return
        made_vars = {v for e in equations for v in e.outputs}
        inputs = tuple(
            dict.fromkeys(a for e in equations for a in e.inputs if isinstance(a, Var) and a not in made_vars)
        )
        program = Program(inputs, tuple(equations), outputs, 0, self.cut.body.name)
        given = [values[v] for v in inputs]
        results, dims = batch_program(program, self.cut.length, None, [x for x, _ in given], [d for _, d in given])
        values.update(zip(outputs, zip(results, dims, strict=True), strict=True))

    def _loop(self, init: Sequence[Any], values: dict[Any, Any]) -> dict[int, Any]:
        """Run the remaining scan; returns the last carries by position and puts the stacked values into `values`."""
        cut = self.cut
        kept_carries = [i for i in range(len(cut.carry)) if i not in cut.sums]
        if not kept_carries and not cut.loop:
            return {}
        consts = (*cut.consts, *cut.fixed, *[v for v in cut.given if values[v][1] is None])
        given = [v for v in cut.given if values[v][1] is not None]
        inputs = (*consts, *[cut.carry[i] for i in kept_carries], *given)
        outputs = (*[cut.body.outputs[i] for i in kept_carries], *cut.stacked)
        inner = Program(inputs, tuple(cut.loop), outputs, len(consts), cut.body.name)
        operands = [*[values[v][0] for v in consts], *[init[i] for i in kept_carries], *[values[v][0] for v in given]]
        new_params = {"body": inner, "num_consts": len(consts), "num_carry": len(kept_carries)}
        outs = bind(scan_p, *operands, **{**self.params, **new_params})
        values.update({v: (x, 0) for v, x in zip(cut.stacked, outs[len(kept_carries) :], strict=True)})
        return dict(zip(kept_carries, outs, strict=False))

    def _summed_products(self) -> dict[Var, Equation]:
        """The matrix products that are summed over the steps and not read otherwise."""
        cut = self.cut
        parts = (*cut.before, *cut.loop, *cut.after)
        uses = [a for e in parts for a in e.inputs] + list(cut.ys) + list(cut.sums.values())
        return {
            e.outputs[0]: e
            for e in (*cut.before, *cut.after)
            if e.op is dot_general_p and e.outputs[0] in cut.sums.values() and uses.count(e.outputs[0]) == 1
        }

    def _product(self, e: Equation, values: dict[Any, Any]) -> Any:
        """The sum over all steps of a matrix product: the steps are one more contracted dim."""
        (x, x_dim), (y, y_dim) = [(a, None) if isinstance(a, Literal) else values[a] for a in e.inputs]
        (xc, yc), (xb, yb) = e.params["dimension_numbers"]
        if x_dim is not None and y_dim is not None:
            up = lambda dims: tuple(d + 1 for d in dims)  # noqa: E731
            dims = (((0, *up(xc)), (0, *up(yc))), (up(xb), up(yb)))
            return bind(dot_general_p, x, y, **{**e.params, "dimension_numbers": dims})
        if x_dim is None and y_dim is None:
            return self._sum(bind(dot_general_p, x, y, **e.params), None)
        x, y = [v if d is None else reduce_sum(v, (0,)) for v, d in ((x, x_dim), (y, y_dim))]
        return bind(dot_general_p, x, y, **e.params)

    def _sum(self, x: Any, dim: int | None) -> Any:
        return mul(x, literal(self.cut.length, x.dtype)) if dim is None else reduce_sum(x, (dim,))

    def _stack_output(self, y: Any, values: dict[Any, Any]) -> Any:
        value, dim = (as_array(y), None) if isinstance(y, Literal) else values[y]
        return in_front(self.cut.length, value, dim)
