"""Fusion: the equations that run as one kernel.

Every stored value has a kernel. Light values that are not stored belong to the kernels of all their readers: elementwise chains,
the operands of reductions and products (prologues), a broadcast, an iota, a cast. A product whose only reader is a chain of its
shape takes the chain in (an epilogue). Kernels over as many elements that share operands are one with several results.
"""

from __future__ import annotations

from dataclasses import replace

from shardwise.ir import Atom, Branches, Equation, Loop, Program, Var, region_of
from shardwise.planner.combine import with_combined_reductions
from shardwise.planner.copies import with_copies
from shardwise.planner.executed import executed_groups
from shardwise.planner.gathers import with_gathers_again
from shardwise.planner.masks import with_masked_products
from shardwise.planner.memory import Frame, carry_copy_bytes, frames_of, program_frame, temporaries_of
from shardwise.planner.order import breadth_first, order_groups
from shardwise.planner.outer_products import with_outer_products
from shardwise.planner.recompute import Chosen, choose_stored, moved_operands
from shardwise.planner.rings import find_rings, with_ring
from shardwise.planner.roles import Role, cost_of, memory_kind_of, reduces_rows
from shardwise.planner.sink import with_moves_in_loops
from shardwise.planner.target import Target
from shardwise.planner.values import Values, fetched_rows, loop_of, rows_of, takes_prologues, values_of
from shardwise.planner.widen import with_wide_products
from shardwise.planner.work import DeviceProgram, Group, heaviest
from shardwise.planner.written_kernels import with_written_kernels, written_kernel

_KINDS = {
    Role.PRODUCT: "product",
    Role.COLLECTIVE: "collective",
    Role.LOOP: "loop",
    Role.BRANCHES: "loop",
    Role.FOLD: "fused",
    Role.LIGHT: "fused",
    Role.UPDATE: "move",
    Role.OFFLOAD: "move",
    Role.OTHER: "other",
}


Arranged = dict[
    tuple[int, tuple[Var, ...]], tuple[tuple[Group, ...], tuple[Group, ...], int, int]
]  # by identity of the groups
Fused = dict[tuple[Program, tuple[Var, ...], tuple[Var, ...]], tuple[Group, ...]]


def groups(program: DeviceProgram, target: Target) -> tuple[Group, ...]:
    """The program's equations as the kernels of `target`, in the order in which they run."""
    return framed_groups(program, target)[0]


def framed_groups(program: DeviceProgram, target: Target) -> tuple[tuple[Group, ...], Frame | None]:
    """`groups`, and the frame of the program; None if it runs as the engine has scheduled it."""
    if target.pooled and program.executed is not None:
        sizes = program.sizes if program.together else dict[str, int]()
        return executed_groups(program.executed, sizes, program.donated), None
    donated_inputs = {program.program.inputs[i] for i in program.donated}
    kept_inputs = frozenset(v for v in program.program.inputs if v not in donated_inputs)
    values = values_of(_rewrite_for_target(program.program, target, kept=kept_inputs), target, hosted=program.hosted)
    frame = program_frame(program, target, values)
    return _arrange_groups(_fuse_values(values, target, {}), frame, target, {}), frame


def _rewrite_for_target(
    program: Program, target: Target, rows: tuple[Var, ...] = (), stacked: int = 0, kept: frozenset[Var] = frozenset()
) -> Program:
    """The program as the target computes it; `rows`, `stacked` and `kept` as for `with_copies`."""
    kernels = with_masked_products(with_written_kernels(program, target), target)
    with_products = with_outer_products(with_gathers_again(with_moves_in_loops(kernels, target), target), target)
    with_copied_values = with_copies(with_products, target, rows, stacked, kept)
    return with_wide_products(with_copied_values, target)


def _arrange_groups(found: tuple[Group, ...], frame: Frame, target: Target, known: Arranged) -> tuple[Group, ...]:
    """The groups in the order that needs least memory, in bodies too, with the memory of the bodies.

    `known`: bodies arranged before. `fuse_program` makes the same groups of the same body.
    """
    arranged_groups: list[Group] = []
    for group in found:
        if group.body:
            bodies = group.branches or (group.body,)
            keys = [(id(body), _fetched_inputs(group, frame.values.host)) for body in bodies]
            if any(key not in known for key in keys):
                for key, body, inner in zip(keys, bodies, frames_of(group, target, frame.values.host), strict=True):
                    in_order = _arrange_groups(body, inner, target, known)
                    region = region_of(group.equations[-1])
                    loop = region if target.copies and isinstance(region, Loop) else None
                    carried_bytes = carry_copy_bytes(inner, loop, in_order) if loop else 0
                    known[key] = body, in_order, temporaries_of(inner, in_order, target), carried_bytes
            bodies = tuple(known[key][1] for key in keys)
            scratch, carried_bytes = max(known[key][2] for key in keys), max(known[key][3] for key in keys)
            branches = bodies if group.branches else ()
            group = replace(group, body=heaviest(bodies), branches=branches, scratch=scratch, carried=carried_bytes)
        arranged_groups.append(group)
    arranged_groups = list(with_combined_reductions(arranged_groups, target))
    if target.order == "breadth":
        return breadth_first(arranged_groups)
    if target.order == "program":
        return tuple(arranged_groups)
    return order_groups(arranged_groups, lambda order: temporaries_of(frame, order, target))


def fuse_program(
    program: Program,
    target: Target,
    rows: tuple[Var, ...] = (),
    fetched: tuple[Var, ...] = (),
    known: Fused | None = None,
) -> tuple[Group, ...]:
    """The kernels of one program, in its order; `rows` and `fetched` as for `values_of`. `known` are those of bodies seen before."""
    known = {} if known is None else known
    return _fuse_values(values_of(program, target, rows, fetched), target, known, fetched)


def _fuse_values(values: Values, target: Target, known: Fused, fetched: tuple[Var, ...] = ()) -> tuple[Group, ...]:
    chosen = choose_stored(values, target)
    rings = find_rings(values, chosen, target)
    absorbed_equations = _epilogues(values, chosen) if target.epilogues else {}
    inside = {product for products in absorbed_equations.values() for product in products}
    away = values.host.union(fetched)
    fused_groups: list[Group] = []
    for i, eqn in enumerate(values.program.equations):
        role = values.roles[i]
        if role in (Role.VIEW, Role.BARRIER) or i in inside or i in rings.taken:
            continue
        if role is Role.LIGHT and chosen.stored.isdisjoint(eqn.outputs):
            continue
        group = _group(values, chosen, target, i, (*absorbed_equations.get(i, ()), *rings.products.get(i, ())), known)
        if away and role not in (Role.LOOP, Role.BRANCHES) and memory_kind_of(eqn) is None:
            group = replace(group, fetched=frozenset(v for v in group.reads if v in away))
        fused_groups.append(with_ring(group, target))
    return _with_several_results(fused_groups, values, target)


def _group(values: Values, chosen: Chosen, target: Target, i: int, products: tuple[int, ...], known: Fused) -> Group:
    """The kernel whose last equation is `i`, with the products that it takes in."""
    eqn, role = values.program.equations[i], values.roles[i]
    equations, read = _cone(values, chosen, i, products)
    kind = "product" if products else "kernel" if eqn.op is written_kernel else _KINDS[role]
    overlaps = target.asynchronous and role is Role.COLLECTIVE and not products
    if kind == "fused" and all(e.op.fold is None and cost_of(e) == 0 for e in equations):
        kind = "move"
    own_results = (*eqn.outputs, values.pieces[i]) if i in values.pieces else eqn.outputs
    stored, roots = chosen.stored, values.roots
    writes = tuple([v for v in own_results if v in stored and v not in roots and _is_written(v, eqn, role, values)])
    moved_values = moved_operands(values, chosen, i) if role is Role.LIGHT or role is Role.FOLD else frozenset[Var]()
    if products or role is Role.PRODUCT:
        moved_values = moved_values.union(
            *[_leaves(values, chosen, j) for j in (i, *products) if values.roles[j] is Role.PRODUCT]
        )
    scratch = _whole_sum(eqn, role, target)
    if target.workspace and (role is Role.PRODUCT or products):
        scratch += min(target.workspace, target.product_bytes * eqn.outputs[0].aval.size)
    group = Group(kind, equations, read, writes, overlaps=overlaps, moved=moved_values, scratch=scratch)
    return _with_body(group, eqn, target, values.host, known) if role in (Role.LOOP, Role.BRANCHES) else group


def _cone(
    values: Values, chosen: Chosen, i: int, products: tuple[int, ...]
) -> tuple[tuple[Equation, ...], tuple[Var, ...]]:
    """The equations of a kernel, and what it reads."""
    own, equations = values.reads[i], values.program.equations
    if not products and chosen.stored.issuperset(own):
        return (equations[i],), own
    cone: set[int] = {i}
    reads: dict[Var, None] = {}
    for j in (i, *products):
        cone.add(j)
        for var in values.reads[j]:
            if var in chosen.stored:
                reads[var] = None
            else:
                cone |= chosen.cones.get(var, frozenset())
                reads.update(dict.fromkeys(chosen.leaves.get(var, (var,))))
    product_results = {v for j in products for v in equations[j].outputs}
    read = tuple([v for v in reads if v not in product_results]) if products else tuple(reads)
    return tuple([equations[j] for j in sorted(cone)]), read


def _leaves(values: Values, chosen: Chosen, i: int) -> set[Var]:
    """The stored values that equation `i` reads, itself or in its cone."""
    return {leaf for v in values.reads[i] for leaf in ((v,) if v in chosen.stored else chosen.leaves.get(v, (v,)))}


def _is_written(var: Var, eqn: Equation, role: Role, values: Values) -> bool:
    """Whether a result is stored. A loop stores its carries, and the stacks that are read."""
    return role is not Role.LOOP or var in values.needed or var in eqn.outputs[: loop_of(eqn).num_carry]


def _whole_sum(eqn: Equation, role: Role, target: Target) -> int:
    """The bytes of a sum over devices that the target stores whole although this device needs only a part."""
    if role is not Role.COLLECTIVE or target.scatters:
        return 0
    whole = sum(a.aval.nbytes for a in eqn.inputs)
    return whole if 2 * sum(v.aval.nbytes for v in eqn.outputs) <= whole else 0


def _with_body(group: Group, eqn: Equation, target: Target, host: set[Var], known: Fused) -> Group:
    region = region_of(eqn)
    assert isinstance(region, (Loop, Branches))
    fetched_inputs = fetched_rows(eqn, host) if isinstance(region, Loop) else ()
    rows, stack_count, kept_inputs = (), 0, frozenset[Var]()
    if isinstance(region, Loop):
        rows, stack_count = rows_of(region), len(region.body.outputs) - region.num_carry
        kept_inputs = frozenset(region.body.inputs[: region.num_consts])
    bodies: list[tuple[Group, ...]] = []
    for program in (region.body,) if isinstance(region, Loop) else region.programs:
        key = (program, rows, fetched_inputs)
        if key not in known:
            known[key] = fuse_program(
                _rewrite_for_target(program, target, rows, stack_count, kept_inputs),
                target,
                rows,
                fetched_inputs,
                known,
            )
        bodies.append(known[key])
    if isinstance(region, Loop):
        stacks = eqn.outputs[region.num_carry :] if target.copies else ()
        filled_bytes = sum([v.aval.nbytes for v in stacks if v in group.writes])
        return replace(group, body=bodies[0], trips=region.length, filled=filled_bytes)
    return replace(group, body=heaviest(bodies), branches=tuple(bodies))


def _fetched_inputs(group: Group, host: set[Var]) -> tuple[Var, ...]:
    """The inputs of a loop's body that come from the host's memory."""
    eqn = group.equations[-1]
    return fetched_rows(eqn, host) if isinstance(region_of(eqn), Loop) else ()


def _epilogues(values: Values, chosen: Chosen) -> dict[int, tuple[int, ...]]:
    """For each equation that stores a light value: the products that only it reads, which then run in its kernel.

    The other operands of the chain must be computed before the product runs.
    """
    readers: dict[Var, set[int]] = {}
    products: dict[int, Var] = {}  # those whose results need not be stored
    roles, stored = values.roles, chosen.stored
    for i, eqn in enumerate(values.program.equations):
        if roles[i] is Role.PRODUCT and eqn.outputs and eqn.outputs[0] not in values.stored:
            products[i] = eqn.outputs[0]
            readers[eqn.outputs[0]] = set()
    for i, eqn in enumerate(values.program.equations) if products else ():
        role = roles[i]
        if role is Role.VIEW or role is Role.BARRIER or (role is Role.LIGHT and stored.isdisjoint(eqn.outputs)):
            continue
        for var in values.reads[i]:
            if var in stored:
                if var in readers:
                    readers[var].add(i)
                continue
            for leaf in chosen.leaves.get(var, ()):
                if leaf in readers:
                    readers[leaf].add(i)
    epilogue_by_product: dict[int, tuple[int, ...]] = {}
    for i, out in products.items():
        at = readers[out]
        if len(at) != 1:
            continue
        (reader,) = at
        result = values.program.equations[reader].outputs[0]
        if values.roles[reader] is not Role.LIGHT or reader in epilogue_by_product or result.aval.size != out.aval.size:
            continue
        others: set[Var] = set()
        for var in values.reads[reader]:
            others.update((var,) if var in chosen.stored else chosen.leaves.get(var, ()))
        if all(values.makers.get(v, -1) < i for v in others if v is not out):
            epilogue_by_product[reader] = (i,)
            chosen.stored.discard(out)
            chosen.leaves[out], chosen.cones[out] = (out,), frozenset((i,))
    return epilogue_by_product


def _with_several_results(found: list[Group], values: Values, target: Target) -> tuple[Group, ...]:
    """Neighbouring fused kernels over as many elements that share operands, or read each other's results, as one.

    What only such a kernel reads stays in its registers, unless it reads elements of it at other places than it computes them, or
    reduces rows: those it has been seen to keep in memory (attention on an H100).
    """
    merged_groups: list[Group] = []
    joined_places: set[int] = set()
    in_memory = {v for v in values.outputs if isinstance(v, Var)}
    for group in found:
        last = merged_groups[-1] if merged_groups and group.kind == "fused" else None
        if last is not None and last.kind == "fused" and _are_one(last, group, values.fenced, target):
            equations = tuple(dict.fromkeys((*last.equations, *group.equations)))
            written_vars = set(last.writes)
            reads: dict[Atom, None] = dict.fromkeys((*last.reads, *(v for v in group.reads if v not in written_vars)))
            moved_values = last.moved | (group.moved - written_vars)
            in_memory |= group.moved & written_vars
            writes = (*last.writes, *group.writes)
            merged_groups[-1] = replace(
                last,
                equations=equations,
                reads=tuple(reads),
                writes=writes,
                moved=moved_values,
                fetched=last.fetched | group.fetched,
            )
            joined_places.add(len(merged_groups) - 1)
        else:
            merged_groups.append(group)
    if joined_places:
        in_memory.update(*[[v for v in group.reads if isinstance(v, Var)] for group in merged_groups])
    for g in [g for g in joined_places if all(e.op.fold is None for e in merged_groups[g].equations)]:
        merged_groups[g] = replace(merged_groups[g], writes=tuple(v for v in merged_groups[g].writes if v in in_memory))
    return tuple(merged_groups)


def _are_one(one: Group, other: Group, fenced: set[Var], target: Target) -> bool:
    """Whether two fused kernels are one."""
    if len(one.writes) > 8:
        return False
    folds = [e for e in one.equations if e.op.fold is not None]
    if any(not _holds_rows(e, target) for e in folds):
        return False  # its result is there when all rows have been read
    if folds and any(e.op.fold is not None and not _holds_rows(e, target) for e in other.equations):
        return False
    if any(e.op.fold is not None and not takes_prologues(e, target) for e in other.equations):
        return False
    size = _space(one)
    if size != _space(other) and not (folds and _space(other) == folds[-1].outputs[0].aval.size):
        return False
    if not fenced.isdisjoint(one.writes) and any(v in one.writes for v in other.reads):
        return False
    shared_values = {*one.writes, *(v for v in one.reads if v.aval.size == size)}
    return any(v in shared_values for v in other.reads)


def _holds_rows(eqn: Equation, target: Target) -> bool:
    """Whether a kernel holds a whole row that this equation reduces."""
    operand = eqn.inputs[0].aval
    if not target.row_bytes or eqn.outputs[0].aval.size * operand.shape[-1] != operand.size:
        return False
    return reduces_rows(eqn) and operand.shape[-1] * max(operand.itemsize, 4) <= target.row_bytes


def _space(group: Group) -> int:
    """The number of elements that the kernel visits."""
    return max([a.aval.size for e in group.equations for a in e.inputs + e.outputs], default=0)
