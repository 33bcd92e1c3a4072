"""The frame of functions that take rows of work through passes: units of work, and how they meet memory."""

from __future__ import annotations

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.runtime.fused.space import Graph
from shardwise.runtime.loops import (
    MASKED,
    OVERLAP,
    STREAMED,
    WHOLE,
    Function,
    Roles,
    Steps,
    Stored,
    TableForm,
    Unit,
    dtype_name,
)
from shardwise.runtime.machine import Lane, itemsize

HEAD = ("units", "grain", "size", "count", "rounds", "strips", "pieces", "piece", "padded", "slot")

# How lanes meet an operand or a result.
CONTIGUOUS, REPEATED, STRIDED = "contiguous", "repeated", "strided"
SPACED = "spaced "  # and a number: every so-manieth element of an operand
# Of vectors with several rows: all rows have the same elements, each row has one (which follow each other in memory, or not), or rows do
# not follow each other.
ALIKE, DENSE_COLUMN, COLUMN, APART = "alike", "dense column", "column", "apart"
PAST_CACHE = "past the cache"  # a contiguous result that nobody reads soon


@dataclass(frozen=True)
class Form:
    """How a group meets memory.

    `along`: lanes run along the innermost loop of a unit of work, else along a kept one. `kept` and `around` count the loops
    around a unit, and those of a unit around its innermost one. `access`: per input as read, then per output, how lanes meet it.
    `ragged`: lanes do not divide the row (or `count`). `split`: pieces are cut from the innermost loop ("inner") or from those
    around it ("outer"). `row`: the elements of a row where vectors have several rows, which follow each other along the innermost loop;
    else 0. `joins`: per value whose pieces lie apart the loop along which they do: the kept ones count first, then those
    `around`, then the innermost one, `sections` of which have pieces of their own. `tables`: of the operands that are read at positions.
    `pairs`: a vector fills two registers, where else two accumulators per reduction take turns. `once`: no vector goes back over
    elements that were done.
    """

    width: int
    along: bool
    kept: int
    around: int
    access: tuple[str, ...]
    ragged: bool
    split: str = "inner"
    row: int = 0
    wide: bool = False
    joins: tuple[int, ...] = ()
    sections: int = 1
    tables: tuple[TableForm, ...] = ()
    pairs: bool = False
    once: bool = False

    @property
    def inner(self) -> int:
        """The number of the innermost loop of a unit, after the kept ones and those around it."""
        return self.kept + self.around

    @property
    def lane(self) -> int:
        """The number of the loop along which lanes run."""
        return self.inner if self.along else self.inner + 1

    @property
    def tile(self) -> tuple[int, ...]:
        """The shape of a vector."""
        return (self.width // self.row, self.row) if self.row else (self.width,)

    def unit(self, copies: int) -> Unit:
        """The loops of a unit; their extents are the job's. `copies`: accumulators per reduction."""
        tail = MASKED if self.sections > 1 or (self.once and self.ragged) else OVERLAP if self.ragged else WHOLE
        roles = Roles(range(self.kept), range(self.kept, self.inner), self.inner, self.lane)
        kept, around = ([f"%{name}{d}" for d in range(n)] for name, n in (("kept", self.kept), ("around", self.around)))
        return Unit(roles, [*kept, *around, "%count"], self.tile, tail, copies)


class GroupFrame:
    """The parts that all functions of a group have in common. Registers have the names of the job's numbers."""

    def __init__(self, graph: Graph, form: Form) -> None:
        self.graph = graph
        self.form = form
        self.atoms = [*(graph.program.inputs[a.number] for a in graph.accesses), *graph.outputs]
        steps = form.inner + 2
        numbers = [*HEAD, *(f"kept{d}" for d in range(form.kept)), *(f"around{d}" for d in range(form.around))]
        numbers += [f"step{k}.{d}" for k in range(len(self.atoms)) for d in range(steps)]
        tables = [k for k, access in enumerate(graph.accesses) if access.at]
        self.table_forms = dict(zip(tables, form.tables, strict=True))
        numbers += [name for k, table in self.table_forms.items() for name in table.names(k)]
        for e, pieces in enumerate(graph.joins.values()):
            numbers += [f"begin{e}.{p}" for p in range(1, len(pieces))]
        self.cuts = len(numbers)  # where the job says where sections begin and end
        pointers = [f"base{k}" for k in range(len(self.atoms))]
        if graph.remembers:
            pointers += ["scratch", "partial", "results"]
        self.w = Function(form.width, numbers, pointers, form.wide)
        self.own = ""  # the memory of this thread
        if any(graph.saved):
            thread = self.w.ticket(self.w.element("%counter", 1, "int64"))
            self.own = self.w.advance_address(
                "%scratch", thread, self.w.integer("mul", "%slot", sum(map(len, graph.saved)))
            )
        self.indices: list[str] = []  # of the unit along the kept loops
        self.here: list[str] = []  # where it begins in each operand and result

    def _place_unit(self, number: str) -> None:
        """Find where the unit begins in each operand and result."""
        w, form = self.w, self.form
        extents = [f"%kept{d}" for d in range(form.kept)]
        indices = w.split(number, extents if form.along else [*extents, "%strips"])
        start = None
        if not form.along:  # the last strip overlaps the one before
            start = w.least(w.integer("mul", indices.pop(), form.width), w.integer("sub", "%size", form.width))
        self.indices, self.here = indices, []
        for k in range(len(self.atoms)):
            place = f"%base{k}"
            for d, index in enumerate(indices):
                place = w.advance_address(place, index, f"%step{k}.{d}")
            self.here.append(place if start is None else w.advance_address(place, start, self._lane_step(k)))

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _stored_operand(self, k: int) -> Stored:
        """Operand or result k from where the unit begins."""
        form, dtype, kind = self.form, dtype_name(self.atoms[k].aval), self.form.access[k]
        steps: list[int | str] = [f"%step{k}.{d}" for d in range(form.inner + 1)]
        size = itemsize(dtype)
        apart = 0 if kind in (REPEATED, ALIKE) else self._lane_step(k) if kind in (STRIDED, COLUMN, APART) else size
        if kind.startswith(SPACED):
            apart = size * int(kind.removeprefix(SPACED))
        if form.row:
            steps[form.lane :] = [
                form.row * size if kind == CONTIGUOUS else apart,
                size if kind in (CONTIGUOUS, ALIKE, APART) else 0,
            ]
        else:
            steps[form.lane :] = [apart]
        return Stored(self.here[k], dtype, steps, STREAMED if kind == PAST_CACHE else "")

    def _lane_step(self, k: int) -> str:
        return f"%step{k}.{self.form.inner + 1}"

    def _inner_step(self, k: int) -> str:
        return f"%step{k}.{self.form.inner}"

    def _load_row(self, k: int) -> Lane:
        """Operand k at the unit's first element: one element in all lanes, or each lane's own."""
        stored, w = self._stored_operand(k), self.w
        return w.read(stored.place, (w.width,), self._row_steps(stored), stored.dtype)

    def _store_row(self, k: int, x: Lane) -> None:
        """Write result k there."""
        stored, w = self._stored_operand(k), self.w
        hint = "" if self.form.along else stored.hint
        w.write(Lane(x.ref, stored.dtype), stored.place, (w.width,), self._row_steps(stored), hint=hint)

    def _row_steps(self, stored: Stored) -> Steps:
        return (0,) if self.form.along else stored.steps[-1:]

    def _slot(self, base: str, row: str, i: int, slots: int) -> str:
        """Where vector i of `row` lies in memory that holds `slots` vectors of up to 8 bytes per lane for each."""
        nbytes = 8 * self.form.width
        return self.w.advance_address(self.w.advance_address(base, row, slots * nbytes), 1, i * nbytes)

    def _put(self, x: Lane, place: str) -> None:
        """A vector as it is in lanes: 16-bit floats are not rounded."""
        self.w.store(Lane(x.ref, _as_lanes(x.dtype)), place)

    def _get(self, dtype: str, place: str) -> Lane:
        return Lane(self.w.load(place, _as_lanes(dtype)).ref, dtype)


def _as_lanes(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype
