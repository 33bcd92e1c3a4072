"""`Function`: an LLVM function that threads run together, with its module.

``void name(i64 *job, void **pointers, i64 *counter)``: the job's numbers and the pointers have names, which are registers in the body.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shardwise.runtime.loops.write import Writer
from shardwise.runtime.machine import llvm

Kernel = Callable[..., None]  # (job, pointers, counter): addresses


def lanes_of(*dtypes: str) -> int:
    """Lanes of a register of 32-bit values, such as the parts of complex ones; fewer where all these types are wider. Narrow types are
    computed 32 bits wide.
    """
    return llvm.target().bytes // (8 if {*dtypes} <= {"float64", "int64", "uint64"} else 4)


class Function(Writer):
    """The body of one function. `numbers` name the job's first words, `pointers` the first pointers."""

    def __init__(
        self, width: int, numbers: Sequence[str] = (), pointers: Sequence[str] = (), wide: bool | None = None
    ) -> None:
        super().__init__(width, llvm.target().wide if wide is None else wide)
        self.start("entry")
        for i, name in enumerate(numbers):
            self.field(name, "%job", i, "i64")
        for i, name in enumerate(pointers):
            self.field(name, "%pointers", i, "ptr")

    def field(self, name: str, table: str, index: int | str, kind: str) -> str:
        """The register `name` with word `index` of a table of i64 or of pointers."""
        self.line(f"%at.{name} = getelementptr {kind}, ptr {table}, i64 {index}")
        self.line(f"%{name} = load {kind}, ptr %at.{name}, align 8")
        return f"%{name}"

    def entry(self, table: str, index: int | str, kind: str = "i64") -> str:
        """Word `index` of a table of i64 or of pointers."""
        return self.field(self.name("entry"), table, index, kind)

    def set_entry(self, table: str, index: int | str, value: int | str, kind: str = "i64") -> None:
        """Write word `index` of such a table."""
        self.line(
            f"store {kind} {value}, ptr {self.value(f'getelementptr {kind}, ptr {table}, i64 {index}', 'at')}, align 8"
        )

    def text(self, name: str = "kernel") -> str:
        """The module; the body is complete."""
        signature = f"define void @{name}(ptr noalias %job, ptr noalias %pointers, ptr %counter)"
        return module(self, f"{signature} #0 {{\n{self.body()}\n  ret void\n}}")

    def compile_function(self, slower: float = math.inf, ahead: bool = False) -> Kernel:
        """The function in machine code; `slower`: nanoseconds that the first call would take longer as a draft; `ahead`: as in
        `llvm.compile_function`.
        """
        return llvm.compile_kernel("kernel", self.text(), slower, ahead)


def module(w: Writer, definition: str) -> str:
    """A module with a function, all that it names, the vectors that it may use, and the marks of branches and stores."""
    bits = 512 if w.wide else 256
    declared = "\n".join(w.declared.values())
    return (
        f"{declared}\n{definition}\n"
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" }}\n'
        '!0 = !{!"branch_weights", i32 1, i32 100000}\n!1 = !{i32 1}\n'
    )
