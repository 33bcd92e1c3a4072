"""`DataFree`: a program compiled in a planned run, or for devices that exist only in the description of a machine.

Its call in such a run is counted, deletes donated arguments, and returns arrays without data. Small single ops of known values are
computed all the same: programs make sizes, indices and checks of them. So is everything where the recorder asks for it.

In: a partitioned program and its results' signatures. Out: the same interface as an `Executable`'s, without kernels or schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardwise.base.dtypes import physical
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.engine.array import ArrayImpl
from shardwise.engine.executable import Executable
from shardwise.engine.lowered import LoweredProgram
from shardwise.engine.planned import Recorder, free_memory, recorder
from shardwise.engine.signature import Signature
from shardwise.ir import Literal, Program, calls_user, subprograms
from shardwise.passes import Context, Module
from shardwise.runtime.hollow import hollow, is_hollow
from shardwise.sharding import Mesh, Sharding

# Bytes of an operand or a result of a single op that is computed: such an op takes less than a millisecond.
COMPUTED_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `compile_program`, kept so that a planner can ask for the same program in other layouts."""

    program: Program
    in_sigs: tuple[Signature, ...]
    out_shardings: tuple[Sharding | None, ...]
    default_mesh: Mesh | None
    legacy: bool


@dataclass(frozen=True, slots=True)
class UserCall:
    """The call of a jitted function for which a program was compiled.

    Attributes:
        wrapped: the jitted function.
        args, kwargs: its arguments, with types (ShapeDtypeStructs) in place of arrays.
        leaves: for each input of the program its position among the arguments' leaves, -1 for captured values.
    """

    wrapped: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    leaves: tuple[int, ...]


class DataFree(LoweredProgram):
    """A program compiled for devices that are not present.

    Attributes:
        module: the program, partitioned.
        context: the devices and fixed layouts that it was compiled for.
        names: the arguments' paths.
        jitted: whether the user asked for one program; otherwise it is a single op, called outside of `jit`.
        request: the arguments of the compiler.
        user_call: the call for which it was compiled; None for single ops.
    """

    __slots__ = (
        "_computed",
        "_computes",
        "_run",
        "_values",
        "context",
        "jitted",
        "module",
        "names",
        "request",
        "user_call",
    )

    def __init__(
        self,
        in_sigs: Sequence[Signature],
        module: Module,
        context: Context,
        out_sigs: Sequence[Signature],
        seconds: dict[str, float],
        owned: Sequence[int],
        names: Sequence[str],
        jitted: bool,
        request: Request,
    ) -> None:
        super().__init__(in_sigs, module, context, out_sigs, seconds, owned, module.device_program)
        self._run: Recorder | None = recorder()
        self.module = module
        self.context = context
        self.names = tuple(names)
        self.jitted = jitted
        self.request = request
        self.user_call: UserCall | None = None
        self._values = [(sig, hollow(sig.form.shape, physical(sig.aval.dtype))) for sig in out_sigs]
        self._computed: Executable | None = None
        self._computes = self._run is not None and (self._run.computes or (not jitted and self._is_small()))
        if self._run is not None:
            self._run.note_program(self)

    def call(self, args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
        """Count the call; returns results of the right types and layouts.

        Raises:
            RuntimeError: there is no planned run, or it is over; or an argument was deleted.
        """
        if self._run is None:
            raise RuntimeError(
                f"{self.name} was compiled for devices that only a description names ({self.grid.devices[0]}, ...): it can be looked at "
                "(memory_analysis, cost_analysis, as_text), not called."
            )
        if recorder() is not self._run:
            raise RuntimeError(
                f"{self.name} was compiled in a planned run, which is over: it has no code for this machine. Compile it again."
            )
        for x in args:
            if type(x) is ArrayImpl:
                x._check_alive()
        self._run.note_call(self)
        if self._computes and all(map(_is_known, args)):
            return self._compute(args)
        for i in self.owned:
            x = args[i]
            if type(x) is ArrayImpl:
                x.delete()
        return [ArrayImpl(sig, dense=value) for sig, value in self._values]

    def _compute(self, args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
        if self._computed is None:
            _check_free(self.name, sum(sig.aval.nbytes for sig in self.out_sigs))
            self._computed = Executable(
                self.in_sigs, self.module, self.context, self.out_sigs, {}, self.owned, self.names
            )
        return self._computed.call(args)

    def _is_small(self) -> bool:
        """Whether it is one op on one device, without loops or functions of the user's, of little data."""
        return (
            not self.owned
            and all(sig.aval.nbytes <= COMPUTED_BYTES for sig in (*self.in_sigs, *self.out_sigs))
            and not any(calls_user(e) or any(True for _ in subprograms(e.params)) for e in self.program.equations)
        )

    def finish(self) -> None:
        """Nothing is left to do: there is no call to write."""

    def single(self) -> Callable[[Sequence[Any]], ArrayImpl]:
        """`call` for a program with one result; it returns that result instead of a list."""
        return lambda args: self.call(args)[0]


def _check_free(name: str, nbytes: int) -> None:
    free = free_memory()
    if free is not None and nbytes > free:
        raise MemoryError(
            f"the results of {name} take {nbytes / 2**30:,.1f} GiB of this machine's memory, of which {free / 2**30:,.1f} GiB are free. "
            "read='compute' (--read compute) is for programs that fit here; with 'zeros' arrays take no memory."
        )


def _is_known(x: ArrayImpl | Literal) -> bool:
    return type(x) is not ArrayImpl or not is_hollow(x.dense)


def without_data(sig: Signature) -> ArrayImpl:
    """An array of this signature without data."""
    return ArrayImpl(sig, dense=hollow(sig.form.shape, physical(sig.aval.dtype)))
