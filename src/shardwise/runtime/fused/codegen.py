"""Machine code for fused loops: LLVM functions that compute a group of elementwise equations in one pass over memory.

Comes in: a group's `Program`, and how the inner loop meets each operand and result. Goes out: a `Kernel`, called through
ctypes without the GIL. A kernel takes chunks of work from a shared counter until none is left, so any number of threads may
run the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.ir import Atom, Literal, Program, Var
from shardwise.runtime.machine import llvm
from shardwise.runtime.machine.lanes import STORED, TYPES, Lane, Lanes

CONTIGUOUS, REPEATED, STRIDED = "c", "0", "s"  # how an inner loop meets an operand
STREAMED = "n"  # a contiguous result that bypasses the cache

_AHEAD = 2048  # bytes

Kernel = Callable[..., None]  # (job, pointers, counter): arrays of 64-bit integers


def width_of(program: Program) -> int:
    """Lanes per vector: a register of 32-bit values, fewer where all values are wider."""
    types = {TYPES[_name(v)] for e in program.equations for v in (*e.inputs, *e.outputs)}
    return llvm.target().bytes // (8 if types <= {"double", "i64"} else 4)


def compiled(program: Program, access: Sequence[str], outer: int) -> Kernel:
    """The kernel of a group whose inner loop meets inputs, then outputs, as `access` says, inside of `outer` loops."""
    return assembled(kernel_text(program, access, outer, width_of(program), llvm.target().wide))


def assembled(text: str) -> Kernel:
    """The function `kernel` of a module."""
    return llvm.compile_kernel("kernel", text)


def _name(atom: Atom) -> str:
    return atom.aval.dtype.name


def kernel_text(program: Program, access: Sequence[str], outer: int, width: int, wide: bool) -> str:
    """The LLVM module of a kernel `void kernel(i64 *job, void **pointers, i64 *counter)`.

    The job: units of work, units per chunk, segments per row, elements per segment, elements per row, the extents of the
    outer loops, then the strides in bytes of each operand and result: outer ones, inner one.
    """
    w = Lanes(width, wide)
    atoms: list[Any] = [*program.inputs, *program.outputs]
    w.start("entry")
    fields = 5 + outer + len(atoms) * (outer + 1)
    job = []
    for i in range(fields):
        w.line(f"%at{i} = getelementptr i64, ptr %job, i64 {i}")
        w.line(f"%job{i} = load i64, ptr %at{i}, align 8")
        job.append(f"%job{i}")
    units, per_chunk, segments, segment, row_size = job[:5]
    extents, strides = job[5 : 5 + outer], job[5 + outer :]
    for k in range(len(atoms)):
        w.line(f"%from{k} = getelementptr ptr, ptr %pointers, i64 {k}")
        w.line(f"%base{k} = load ptr, ptr %from{k}, align 8")
    w.line(f"%limit0 = sub i64 {row_size}, {width}")
    w.line("br label %chunks")
    w.start("chunks")
    w.line("%chunk_number = atomicrmw add ptr %counter, i64 1 monotonic")
    w.line(f"%first = mul i64 %chunk_number, {per_chunk}")
    w.line(f"%more = icmp ult i64 %first, {units}")
    w.line("br i1 %more, label %chunk, label %exit")
    w.start("chunk")
    w.line(f"%full = add i64 %first, {per_chunk}")
    w.line(f"%cut = icmp ult i64 %full, {units}")
    w.line(f"%last = select i1 %cut, i64 %full, i64 {units}")
    w.line("br label %unit")
    w.start("unit")
    w.line("%u = phi i64 [ %first, %chunk ], [ %u_next, %unit_end ]")
    w.line(f"%part = urem i64 %u, {segments}")
    w.line(f"%row{outer} = udiv i64 %u, {segments}")
    w.line(f"%start = mul i64 %part, {segment}")
    for d in reversed(range(outer)):
        w.line(f"%i{d} = urem i64 %row{d + 1}, {extents[d]}")
        w.line(f"%row{d} = udiv i64 %row{d + 1}, {extents[d]}")
    values: dict[Var, Lane] = {}
    for k, atom in enumerate(atoms):
        place = f"%base{k}"
        steps = strides[k * (outer + 1) : (k + 1) * (outer + 1)]
        for index, stride in [*((f"%i{d}", steps[d]) for d in range(outer)), ("%start", steps[outer])]:
            offset, moved = "%" + w.name("o"), "%" + w.name("p")
            w.line(f"{offset} = mul i64 {index}, {stride}")
            w.line(f"{moved} = getelementptr i8, ptr {place}, i64 {offset}")
            place = moved
        w.line(f"%here{k} = getelementptr i8, ptr {place}, i64 0")
        if access[k] == REPEATED and k < len(program.inputs):
            stored = STORED[_name(atom)]
            w.line(f"%scalar{k} = load {stored}, ptr %here{k}, align 1")
            values[atom] = w.loaded(f"%scalar{k}", _name(atom), scalar=True)
    w.line(f"%rest = sub i64 {row_size}, %start")
    w.line(f"%whole = icmp ult i64 {segment}, %rest")
    w.line(f"%count = select i1 %whole, i64 {segment}, i64 %rest")
    w.line("%limit = sub i64 %limit0, %start")
    w.line("br label %loop")
    w.start("loop")
    w.line("%i = phi i64 [ 0, %unit ], [ %i_next, %latch ]")
    # The last vector ends with the row: it computes some elements twice instead of fewer.
    w.line("%inside = icmp slt i64 %i, %limit")
    w.line("%j = select i1 %inside, i64 %i, i64 %limit")
    for k, var in enumerate(program.inputs):
        if access[k] != REPEATED:
            values[var] = _load(w, k, _name(var), access[k], strides[k * (outer + 1) + outer])
    _write_group(w, program, values)
    for k, atom in enumerate(program.outputs, len(program.inputs)):
        stored = STORED[_name(atom)]
        raw = w.storable(_read(w, atom, values))
        w.line(f"%to{k} = getelementptr {stored}, ptr %here{k}, i64 %j")
        hint = f"align {w.bytes_of(stored)}, !nontemporal !1" if access[k] == STREAMED else "align 1"
        w.line(f"store {w.vector(stored)} {raw}, ptr %to{k}, {hint}")
    w.line("br label %latch")
    w.start("latch")
    _prefetch(w, program, access)
    w.line(f"%i_next = add i64 %i, {width}")
    w.line("%again = icmp ult i64 %i_next, %count")
    w.line("br i1 %again, label %loop, label %unit_end")
    w.start("unit_end")
    w.line("%u_next = add i64 %u, 1")
    w.line("%units_left = icmp ult i64 %u_next, %last")
    w.line("br i1 %units_left, label %unit, label %chunks")
    w.start("exit")
    w.line("ret void")
    head = "\n".join(w.declared.values())
    body = "\n".join(w.lines)
    signature = "define void @kernel(ptr noalias %job, ptr noalias %pointers, ptr %counter)"
    return f"{head}\n{signature} #0 {{\n{body}\n}}\n{attributes(wide)}"


def attributes(wide: bool) -> str:
    """The end of a module: the vectors that its function may use, and the marks of rare branches and of streamed stores."""
    bits = 512 if wide else 256
    return (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}\n'
        '!0 = !{!"branch_weights", i32 1, i32 100000}\n!1 = !{i32 1}\n'
    )


def _prefetch(w: Lanes, program: Program, access: Sequence[str]) -> None:
    """Ask for the cache lines that iterations soon will meet: long bodies leave the processor no room to look ahead."""
    w.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for k, atom in enumerate([*program.inputs, *program.outputs]):
        if access[k] == CONTIGUOUS:
            written = int(k >= len(program.inputs))
            w.line(f"%ahead{k} = getelementptr {STORED[_name(atom)]}, ptr %here{k}, i64 %i")
            w.line(f"%fetch{k} = getelementptr i8, ptr %ahead{k}, i64 {_AHEAD}")
            w.line(f"call void @llvm.prefetch.p0(ptr %fetch{k}, i32 {written}, i32 3, i32 1)")


def _load(w: Lanes, k: int, dtype: str, access: str, stride: str) -> Lane:
    """Operand k at element %j of the row."""
    stored = STORED[dtype]
    if access == CONTIGUOUS:
        w.line(f"%at_j{k} = getelementptr {stored}, ptr %here{k}, i64 %j")
        w.line(f"%raw{k} = load {w.vector(stored)}, ptr %at_j{k}, align 1")
        return w.loaded(f"%raw{k}", dtype)
    w.line(f"%off{k} = mul i64 %j, {stride}")
    w.line(f"%lane{k}.0 = getelementptr i8, ptr %here{k}, i64 %off{k}")
    raw = "poison"
    for lane in range(w.width):
        w.line(f"%one{k}.{lane} = load {stored}, ptr %lane{k}.{lane}, align 1")
        w.line(f"%raw{k}.{lane} = insertelement {w.vector(stored)} {raw}, {stored} %one{k}.{lane}, i64 {lane}")
        raw = f"%raw{k}.{lane}"
        if lane + 1 < w.width:
            w.line(f"%lane{k}.{lane + 1} = getelementptr i8, ptr %lane{k}.{lane}, i64 {stride}")
    return w.loaded(raw, dtype)


def _read(w: Lanes, atom: Atom, values: dict[Var, Lane]) -> Lane:
    return w.constant(atom.value, _name(atom)) if isinstance(atom, Literal) else values[atom]


def _write_group(w: Lanes, program: Program, values: dict[Var, Lane]) -> None:
    """The equations' instructions. Narrow floats are computed as float32 and rounded after each op, as NumPy does."""
    for eqn in program.equations:
        assert eqn.op.emit is not None
        operands = [_read(w, a, values) for a in eqn.inputs]
        var = eqn.outputs[0]
        out = Lane(eqn.op.emit.write(w, *operands, **eqn.params).ref, _name(var))
        values[var] = out if eqn.op.emit.exact else w.narrowed(out)
