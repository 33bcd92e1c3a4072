"""`Op`: one definition gives all that the system knows of an operation.

Comes in: a declaration (type rule, sharding rule, kernel, derivative) made once, in the op's own file under `ops/`.
Goes out: an `Op` whose fields every pass reads; passes name only ops that they insert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir.boxes import Box
from shardwise.ir.collective import Collective
from shardwise.ir.indexed import IndexedWindows
from shardwise.ir.key_uses import KeyUses
from shardwise.ir.region import Region
from shardwise.ir.shown import AS_IT_IS, Shown
from shardwise.ir.types import ShapedArray
from shardwise.sharding.rule import Rule, make_rule, pointwise_rule

Params = Mapping[str, Any]
Types = tuple[ShapedArray, ...]


class Steps(NamedTuple):
    """The work of a kernel that runs an algorithm.

    Attributes:
        algorithm: its name; "" where there is none. Of a variant "name/variant".
        number: how many steps it takes, many of which can run at once.
        turns: how many of them wait for each other: the columns of a factorization.
        size: by which a step takes more or less time: the elements of a row, the shorter side of a matrix.
    """

    algorithm: str
    number: float
    turns: float = 1.0
    size: float = 1.0


RuleFn = Callable[[Types, Types, Params], Rule]


@dataclass(frozen=True, slots=True)
class Halo:
    """The window of a split dim that each device needs: device i takes ``[step * i + start, step * i + start + width)``.

    Positions outside of the dim hold `fill`, or the value of operand `fill_operand`. `params` are the op's own for the window. The
    size of a device's part is a multiple of `unit`.
    """

    step: int
    start: int
    width: int
    params: Params
    fill: Any = 0
    fill_operand: int | None = None
    unit: int = 1


@dataclass(frozen=True, slots=True)
class Emit:
    """How an elementwise op is written in a fused loop of vector code (see runtime.machine.lanes).

    `write` is ``(lanes, *values, **params) -> value``, for operands whose dtypes are of the `kinds` (b, i, u, f: real ones of
    at most 64 bits; c: complex64; w: floats of 32 or 64, s: of at most 32; k: PRNG keys, in small programs). `exact`: results need no
    rounding to a narrow float type. `cost`: relative to an addition. `spared`: nanoseconds per element that it saves beside the op's
    kernel of NumPy functions, where that is much slower. `moves`: dims of operands and results correspond by the factors of the op's
    sharding rule, and values do not change.
    """

    write: Callable[..., Any]
    kinds: str = "biuf"
    exact: bool = False
    cost: int = 1
    spared: float = 0.0
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """How a reduction is written in a fused loop of vector code: accumulators, a tuple of vectors, take in value after value.

    `start` is ``(lanes, dtype) -> accumulators``; `step` ``(lanes, accumulators, value, position) -> accumulators``,
    the position along the reduced dim being None unless `positions`; `merge` joins two tuples of accumulators; `finish`
    is ``(lanes, accumulators, dtype) -> result``. `across`, optional, is ``(lanes, accumulators, pairs) ->
    accumulators`` joined over all lanes, where ``pairs(accumulators)`` does so by `merge`; fewer lanes may be left.
    Params of the op: `axes` are the reduced dims, `sum_axes`, where the op absorbs a collective or `crosses`, mesh axes
    that are reduced too. `kinds` as those of `Emit`.
    """

    start: Callable[..., Any]
    step: Callable[..., Any]
    merge: Callable[..., Any]
    finish: Callable[..., Any]
    kinds: str = "biuf"
    positions: bool = False
    across: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class ElementRead:
    """How an op reads elements of operand 0, a table: one per element of the result.

    `along` has per dim of the table the dim of the result whose index is added to the position there, or None; `at` the dims that
    positions count along, in the order in which they are given, and `spans` how many elements from a position on must be in the table.
    Positions elsewhere are clamped, or give `fill` if that is not None. `wraps`: negative ones count from the end. `aligned`: the dims
    of the table along which each position has its own element, as it has its own along dims of the result.
    """

    along: tuple[int | None, ...]
    at: tuple[int, ...]
    spans: tuple[int, ...]
    wraps: bool
    fill: Any = None
    aligned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SmallForm:
    """How an op is written in a program of few elements (see `runtime.small`).

    Ops with an `Emit`, a `Fold` or a `region`, views and those that hand on their operands need none: their forms follow from these
    fields (see `runtime.small.forms`).

    write       ``(body, eqn, operands, wanted) -> results``: the operands and results as `runtime.small.code.Value`s; `wanted` holds
                for each result the memory where it is wanted, or None. A `later` rule keeps the writer's module out of start-up.
    fits        ``(eqn, spread) -> bool``: whether an equation can be written for its params and types on such devices. That
                dtypes have machine types, and that results are small, is asked of all ops.
    room        ``(body, eqn) -> Value | None``: the memory of the result where operand 1 goes, so that it is computed there.
    mapped      under `vmap` it is written once, in a loop over the mapped dims.
    calls       about how many calls of NumPy the kernel makes for few elements; ``(eqn, spread) -> int`` where the equation tells.
    alike       whether the kernel gives the same bits, so that it may run until compilation pays; ``(eqn) -> bool`` likewise.
    spared      nanoseconds per element of the operands that it saves beside the op's kernel of NumPy functions.
    sums        ``(code, eqn, operands) -> axes``: of the mesh axes that the equation reduces over, those that `write` does itself.
    """

    write: Callable[..., Any]
    fits: Callable[..., bool] | None = None
    room: Callable[..., Any] | None = None
    mapped: bool = False
    calls: int | Callable[[Any, Any], int] = 1
    alike: bool | Callable[[Any], bool] = True
    spared: float = 0.0
    sums: Callable[..., tuple[str, ...]] | None = None

    def calls_for(self, eqn: Any, spread: Any) -> int:
        """`calls` of an equation on such devices."""
        return self.calls if isinstance(self.calls, int) else self.calls(eqn, spread)

    def is_alike(self, eqn: Any) -> bool:
        """`alike` of an equation."""
        return self.alike if isinstance(self.alike, bool) else self.alike(eqn)


class Groups(NamedTuple):
    """The groups of a product.

    Attributes:
        total: how many there are, of all devices; 1 where they make no difference.
        own: how many of them a device has.
        results: whether each has a result of its own, else an operand.
    """

    total: int
    own: int
    results: bool


@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """A product of groups of rows, or of groups along the summed dim, each with an operand or a result of its own.

    groups      ``(in_types, params) -> Groups``.
    masked      ``(eqn) -> Program | None``: the same as one product of all groups with all rows, as some compilers compute it; None
                where groups make no difference.
    """

    groups: Callable[..., Groups]
    masked: Callable[..., Any]


@dataclass(eq=False, slots=True)
class Op:
    """An operation. Made by `define_op`; compared by identity.

    name            as printed in programs
    type_rule       ``(*in_types, **params) -> ShapedArray`` (a tuple of them if `multiple_results`). Gives shape, dtype and
                    weak_type only, and raises TypeError/ValueError on bad operands. Explicit specs and vma are derived from
                    the sharding rule, unless `typed` says that the type rule gives complete types (collectives, casts).
    multiple_results
                    results come as a tuple.
    kernel          ``(env, *blocks, **params) -> block`` (a tuple if `multiple_results`). A generalized ufunc: the first
                    `env.lead` dims of every block are loop dims (mesh axes, vmap axes) of extent n or 1 that broadcast
                    against each other; the remaining dims are the operand's own. The result's leading extents are the
                    broadcast of the operands'. Never writes into an operand; may return views.
    ufunc           for elementwise ops: a callable of the blocks alone that broadcasts as NumPy does (no env, no params
                    beyond those bound by `bind_params`); kernel is derived from it.
    ufunc_of        ``(*dtypes) -> ufunc`` optional: the function for operands of these dtypes, where `ufunc` itself would look at them
                    at each call.
    rule            ``(in_types, out_types, params) -> Rule``, or a signature text, or None for elementwise.
    reduction       how local results of REDUCE factors combine over devices: the name of a monoid (see runtime.monoids).
    collective      for ops over mesh axes: their further fields, a `Collective`.
    shown           how JAX's programs show it, a `Shown`.
    localize        ``(params, in_types, out_types) -> params`` for the given *local* types: adapts params that hold shapes.
    place           ``(params, in_dims, out_dims) -> params`` for kernels that must know which mesh axes split the dims of their
                    local operands and results (iota, gather): dims as tuples of axis names, major first.
    to_grid         ``(params, grid, in_types, out_types) -> params``: mesh-related params (shardings, specs) as layouts over the
                    axes of the computation's device grid, before propagation.
    contraction     ``(in_types, out_types, params) -> dtype | None`` for matrix products with params `dimension_numbers` and `sum_axes`:
                    the float type they compute in, to which operands, and from which the result, are converted.
    absorbs         the collective that the kernel does as well, over the axes of the param `sum_axes`: its results are combined by
                    `reduction`.
    crosses         a reduction that takes a param `sum_axes` too, mesh axes over which it reduces in the same loop: one that a value
                    may enter more than once.
    halo            ``(params, dim, in_types, part) -> Halo | None``: for a factor of dim `dim` of operand 0 that stays split: which window
                    of it each device needs, and the params of the op on that window. `part` is the size of a device's part: of
                    the result's dim for a PERMUTE factor, of operand 1's for a REDUCE factor.
    boxes           ``(eqn) -> boxes of each result | None`` for ops that only move elements: their results are put together from these
                    boxes of operands, later ones over earlier ones (see passes.views). Fused loops read whole operands that stand
                    one after the other where they lie (see runtime.fused.space).
    partition       ``(ctx, eqn, ...)`` custom partitioning for ops whose local form takes several equations
                    (see passes.partition).
    explicit        ``(in_types, out_types, params, rule) -> tuple[Spec, ...]`` the type-level sharding rule where it differs
                    from what the sharding rule implies.
    edges           ``(eqn) -> groups of values that share one sharding`` for ops with regions.
    emit            for elementwise ops: how they are written as vector code, an `Emit`; without it they are not fused.
    fold            for reductions: how they are written as vector code, a `Fold`; without it they are not fused.
    element_read    ``(eqn) -> ElementRead | None`` for ops that read elements of operand 0 at positions: the other operands have one for
                    each dim that is counted along, in a last dim (see passes.element_reads).
    at_positions    it reads elements, and each other operand holds positions, in the rank of the result: fused loops read them.
    small           how it is written in small programs, a `SmallForm`, where no other field says so.
    static          ``(eqn) -> Equation | None``: in a program to be compiled, the equation of a simpler op that does the same where
                    the operands of this one are literals.
    eager           ``(*args, **params) -> result`` for ops that no compiled program can hold: moving concrete arrays to other devices.
    ahead           ``(in_types, params)``: called before the op is compiled, begins to load in the background what the kernel needs.
    compile         ``(env, in_types, out_types, params) -> callable(*blocks)`` optional: the kernel prepared once per Plan.
    columns         ``(env, params) -> callable(operand, *columns, *others)`` for ops whose operand 1 has vectors of positions: the
                    kernel for vectors whose columns are operands of their own, each with a last dim of size 1.
    across          like `compile`, for ops that need data of other devices (collectives, and sums over `sum_axes`): their kernel where
                    the device grid lies over several processes.
    transcendental  costs count its result's elements as transcendentals, not as flops.
    makes_nan       it may give a NaN where no operand has one, or is arithmetic that passes NaNs on: `checkify` looks at its result. None:
                    as `transcendental` says.
    divisor         the operand by which it divides: `checkify` looks for zeros there.
    indexed         ``(params, in_types) -> IndexedWindows | None``: the windows that it reads or writes at places that operands say.
    keys            what it does with random keys, a `KeyUses`, or ``(eqn, uses of a program) -> KeyUses``; None: it consumes those that it
                    gets, and gives used ones.
    product         a matrix product or convolution: the checkpoint policies for dots save it, unless it is `grouped`.
    grouped         for products of groups of rows, a `GroupedProduct`.
    region          ``(eqn) -> Loop | Branches`` for ops that run programs: how often, and with which operands.
    steps           for ops that hold programs: ``(eqn, operands, run) -> results`` on one device's arrays: a generator, in which
                    ``yield from run(program, values)`` runs a program.
    local           the programs in its params keep their values in registers and caches: they take no memory of their own.
    workspace       ``(in_types, out_types, params) -> bytes`` that the kernel needs while it runs, besides operands and results; or
                    those of each of its buffers.
    numeric         params hold numbers of any kind: keys of them compare types and bits at any depth (see ir.keys). Set for an
                    op whose params take users' values; found out otherwise.
    updates         the result is operand 0 with something written into it; the kernel may write there where nobody else sees it.
    writes_over     ``(params) -> positions`` of the operands of which it replaces elements, for an op that holds updates.
    arranges        its results are its operands, one by one, with elements moved along a dim: a compiler may do so where they lie.
    hold            ``(params, in_types) -> f | None`` for such an op: ``f(going, *operands)`` is the result where the bool scalar `going`
                    is true, else operand 0, and reads and writes no more of it than the op does.
    extracts        small programs take elements out of operand 0: "copies" of their own, or a "window" that is copied where it is small.
    view            the kernel gives a view of operand 0: the result takes no memory.
    hands_on        its results are its operands, unchanged.
    memory_kind     ``(params) -> kind | None``: the kind of memory in which the result is to lie, 'pinned_host' or 'device', where the op
                    says so. This machine has one; plans for others read it.
    additive        commutes with the sum over devices where all operands, or those of a slice, are partial sums alike.
    scales          the number of first operands in each of which it is linear: one may hold partial sums where the others are `reduced`.
    forward_first   early on, operand 0's layout propagates forward to the result, but the result's does not propagate backward.
    typed           the type rule gives complete types.
    inline          ``(eqn) -> Program``: the op is a call; compiled programs hold this program in its place.
    call            it does nothing but call the program in its param `program`.
    constrains      ``(eqn) -> (dims, open)``: the layout that the result has in any case: mesh axes per dim, and the dims that may be
                    split further.
    boundary        a region that works on blocks: params `in_dims` and `out_dims` say how they lie, `auto` the axes that are free.
    effects         True, or a predicate of params: never removed nor merged.
    calls_user      runs Python code of the user's, which may raise, and which counts its calls.
    holds_functions its params hold functions of the user's, and these what they close over: its types are not kept by params.
    narrow          ``(params, wanted, part_of) -> NarrowedEquation`` for ops with several results, some of which may be unread: the
                    equation that gives the wanted ones alone. ``part_of(program, results)`` is the part of a program that some results
                    follow from.
    algorithm       ``(in_types, out_types, params) -> Steps`` for kernels that are no loop over elements: the algorithm that they run,
                    and how many of its steps. What a step takes is a figure of the machine (see planner.steps).
    rewrite         ``(eqn, devices) -> Program | None``: a program that is cheaper to run on so many devices than an equation of a
                    per-device program, and takes its place. Follows from the params and the types of operands.
    jvp             ``(primals, tangents, **params) -> (out, tangent)`` (tuples of both if `multiple_results`) in terms of other ops;
                    a tangent is None where it is zero. Linear ops may give the string "linear": the tangent is the op itself.
    transpose       for ops that are linear in some operands: ``(ct, *args, **params) -> one cotangent or None per arg``; linear
                    args come as `UndefinedPrimal(aval)`, the others as values; `ct` is a tuple if `multiple_results`.
    linearize       ops with regions: ``(trace, primals, tangents, params) -> (outs, tangents)``, the forward part bound outside of
                    the linear trace; see transforms.interpreters.linearize.
    batch           ``(size, axis_name, values, dims, params) -> (outs, dims)`` where the general mechanism
                    (see transforms.interpreters.batch_trace) does not serve: ops with regions, collectives.
    """

    name: str
    type_rule: Callable[..., Any]
    kernel: Callable[..., Any] | None = None
    ufunc: Callable[..., Any] | None = None
    ufunc_of: Callable[..., Any] | None = None
    rule: RuleFn | str | None = None
    multiple_results: bool = False
    reduction: str | Callable[[Params], str] = "sum"
    localize: Callable[..., Params] | None = None
    place: Callable[..., Params] | None = None
    to_grid: Callable[..., Params] | None = None
    halo: Callable[..., Halo | None] | None = None
    boxes: Callable[..., Sequence[Sequence[Box]] | None] | None = None
    partition: Callable[..., Any] | None = None
    explicit: Callable[..., Any] | None = None
    edges: Callable[..., Any] | None = None
    emit: Emit | None = None
    fold: Fold | None = None
    element_read: Callable[..., ElementRead | None] | None = None
    at_positions: bool = False
    small: SmallForm | None = None
    eager: Callable[..., Any] | None = None
    ahead: Callable[..., None] | None = None
    compile: Callable[..., Any] | None = None
    columns: Callable[..., Any] | None = None
    across: Callable[..., Any] | None = None
    effects: bool | Callable[[Params], bool] = False
    calls_user: bool = False
    holds_functions: bool = False
    typed: bool = False
    collective: Collective | None = None
    shown: Shown = AS_IT_IS
    contraction: Callable[..., Any] | None = None
    absorbs: Op | None = None
    crosses: bool = False
    transcendental: bool = False
    makes_nan: bool | None = None
    divisor: int | None = None
    indexed: Callable[..., IndexedWindows | None] | None = None
    keys: KeyUses | Callable[..., KeyUses] | None = None
    product: bool = False
    grouped: GroupedProduct | None = None
    region: Callable[..., Region] | None = None
    steps: Callable[..., Any] | None = None
    algorithm: Callable[[Types, Types, Params], Steps] | None = None
    local: bool = False
    workspace: Callable[..., int | tuple[int, ...]] | None = None
    numeric: bool = False
    updates: bool = False
    writes_over: Callable[[Params], tuple[int, ...]] | None = None
    arranges: bool = False
    hold: Callable[..., Any] | None = None
    extracts: str | None = None
    view: bool = False
    hands_on: bool = False
    memory_kind: Callable[[Params], str | None] | None = None
    additive: bool | tuple[int | None, ...] = False
    scales: int = 0
    forward_first: bool = False
    constrains: Callable[..., Any] | None = None
    boundary: bool = False
    call: bool = False
    inline: Callable[..., Any] | None = None
    static: Callable[..., Any] | None = None
    narrow: Callable[..., Any] | None = None
    rewrite: Callable[..., Any] | None = None
    jvp: Any = None
    transpose: Callable[..., Any] | None = None
    linearize: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return self.name

    __hash__ = object.__hash__

    @property
    def may_give_nan(self) -> bool:
        """Whether `checkify` looks for NaNs in its results."""
        return self.transcendental if self.makes_nan is None else self.makes_nan

    @property
    def block_kernel(self) -> Callable[..., Any]:
        """The `kernel`, of an op that has one."""
        if self.kernel is None:
            raise TypeError(f"op {self.name} has no kernel; it should have been rewritten before execution")
        return self.kernel

    def has_effects(self, params: Params) -> bool:
        """Whether an equation with these params must be kept though nobody uses its results."""
        return self.effects(params) if callable(self.effects) else self.effects

    def exchange_axes(self, params: Params) -> tuple[str, ...]:
        """The mesh axes between whose devices an equation with these params moves data; () if it moves none."""
        inner = params.get("mapped_op")
        if isinstance(inner, Op):
            return inner.exchange_axes(dict(params["inner"]))
        if self.across is None:
            return ()
        return params["axes"] if self.absorbs is None else params.get("sum_axes", ())

    def ufunc_for(self, dtypes: Iterable[Any]) -> Callable[..., Any] | None:
        """The `ufunc` for operands of these dtypes."""
        return self.ufunc if self.ufunc_of is None else self.ufunc_of(*dtypes)

    def sharding_rule(self, in_types: Types, out_types: Types, params: Params) -> Rule:
        """The sharding rule for operands and results of these types."""
        rule = self.rule
        if rule is None:
            return pointwise_rule(tuple(t.shape for t in in_types), tuple(t.shape for t in out_types))
        if isinstance(rule, str):
            return make_rule(rule, [t.shape for t in in_types], [t.shape for t in out_types])
        return rule(in_types, out_types, params)

    def reduction_of(self, params: Params) -> str:
        """How partial results combine."""
        return self.reduction(params) if callable(self.reduction) else self.reduction


def unwrap_op(op: Op, params: Params) -> tuple[Op, Params, tuple[tuple[bool, ...], ...]]:
    """The op that runs under any number of vmaps, its params, and for each vmap which operands have its dim (in front)."""
    if "mapped_op" not in params:
        return op, params, ()
    mapped_dims: list[tuple[bool, ...]] = []
    while isinstance(params.get("mapped_op"), Op):
        mapped_dims.append(params["mapped"])
        op, params = params["mapped_op"], dict(params["inner"])
    return op, params, tuple(mapped_dims)


class UndefinedPrimal:
    """In a transpose rule, an operand in which the op is linear and whose cotangent is asked for."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval.str_short()})"


_registry: dict[str, Op] = {}


def define_op(name: str, **fields: Any) -> Op:
    """Define an op once, in one place; `fields` are those of `Op`. Raises ValueError if the name is taken."""
    if name in _registry:
        raise ValueError(f"op {name!r} is defined twice")
    return _registry.setdefault(name, Op(name, **fields))


def find_op(name: str) -> Op:
    """The op of that name; KeyError if its file has not been imported."""
    return _registry[name]


def all_ops() -> dict[str, Op]:
    """Every defined op by name (tests check that each has the fields that it needs)."""
    return dict(_registry)
