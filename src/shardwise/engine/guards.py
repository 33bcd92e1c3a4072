"""Settings that refuse the call of a compiled program, or check its use of random keys.

In: the call of an `Executable`, or the devices of its arguments. Out: a call that checks first, or an error. Programs are compiled again
if one of these settings changes, so that calls cost nothing while all of them are off.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.contexts import check_thread_guard
from shardwise.base.errors import JaxRuntimeError, KeyReuseError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import Signature
from shardwise.ir import Program, source_text
from shardwise.ir.key_uses import KeyUses, Mask, is_key, overlap, union
from shardwise.ir.sources import user_source
from shardwise.passes import key_uses
from shardwise.sharding import Device

Call = Callable[[Sequence[Any]], list[ArrayImpl]]
_LOG = logging.getLogger("shardwise")


def refuse_execution(call: Call, name: str, many_processes: bool) -> Call:
    """`call` under jax_no_execution and jax_thread_guard."""
    if config.jax_no_execution:

        def refuse_call(args: Sequence[Any]) -> list[ArrayImpl]:
            raise RuntimeError(f"The function {name} was to be executed, but the no_execution config option is set.")

        return refuse_call
    if not (many_processes and config.jax_thread_guard):
        return call

    def guarded_call(args: Sequence[Any]) -> list[ArrayImpl]:
        check_thread_guard()
        return call(args)

    return guarded_call


# -- transfers between devices ------------------------------------------------------------------------------------------------


def guard_moves(name: str, args: Iterable[Any], devices: tuple[Device, ...]) -> None:
    """Apply transfer_guard to arguments that lie on other devices than the program's.

    Raises:
        JaxRuntimeError: the guard disallows it.
    """
    guard = config.jax_transfer_guard_device_to_device
    if guard is None or guard == "allow":
        return
    for x in args:
        if isinstance(x, ArrayImpl) and set(x._sig.devices) != set(devices):
            _guard_move(guard, f"{x.aval.str_short()} moves to the devices of {name}")


def guard_explicit_move(sig: Signature, devices: tuple[Device, ...]) -> None:
    """Apply transfer_guard to a device_put of a committed array, which only the explicit levels can refuse."""
    guard = config.jax_transfer_guard_device_to_device
    if guard is not None and guard.endswith("explicit") and set(sig.devices) != set(devices):
        _guard_move(guard, f"{sig.aval.str_short()} moves to {len(devices)} other devices by device_put")


def _guard_move(guard: str, what: str) -> None:
    if guard.startswith("log"):
        _LOG.warning("device-to-device transfer: %s", what)
        return
    raise JaxRuntimeError(
        f"Disallowed device-to-device transfer: {what}, under transfer_guard({guard!r}). Place the array with device_put first, or "
        "allow transfers."
    )


# -- keys -------------------------------------------------------------------------------------------------------------------------


@dataclass
class _State:
    """The consumed keys of an array of keys, and the place of first use. Arrays that are the same single key share one state."""

    mask: Mask
    where: str


_states: dict[int, tuple[Any, _State]] = {}  # by the id of an array, with a weak reference to it


def _state(x: Any) -> _State:
    known_value = _states.get(id(x))
    return _State(False, "") if known_value is None or known_value[0]() is not x else known_value[1]


def _keep(x: Any, state: _State) -> None:
    number = id(x)
    _states[number] = (weakref.ref(x, lambda _: _states.pop(number, None)), state)


def watch_keys(call: Call, program: Program) -> Call:
    """`call`, raising KeyReuseError for keys that are consumed already, and marking the keys that it consumes.

    Raises:
        KeyReuseError: `program` itself uses a key twice.
    """
    if not any(map(is_key, (*program.inputs, *program.outputs))):
        if any(is_key(v) for e in program.equations for v in e.outputs):
            key_uses(program)
        return call
    uses, ops = key_uses(program), {e.op for e in program.equations}
    op = ops.pop() if len(ops) == 1 else None
    label = "jit-compiled function" if op is None or op.call else op.name
    order = [
        *range(program.num_consts, len(program.inputs)),
        *range(program.num_consts),
    ]  # arguments first, then captured arrays
    place_by_input = {i: place for place, i in enumerate(order)}

    def watched_call(args: Sequence[Any]) -> list[ArrayImpl]:
        for i, mask in uses.sinks.items():
            state = _state(args[i])
            if overlap(state.mask, mask):
                raise KeyReuseError(
                    f"Previously-consumed key passed to {label} at index {place_by_input[i]} ({program.name}): it was used or split before"
                    f"{state.where}. Split keys, and use each part once."
                )
        results = call(args)
        _mark(uses, args, results)
        return results

    return watched_call


def _mark(uses: KeyUses, args: Sequence[Any], results: Sequence[ArrayImpl]) -> None:
    source = user_source()
    where = f", at {source_text(source)}" if source else ""
    for i, mask in uses.sinks.items():
        if isinstance(args[i], ArrayImpl):
            state = _state(args[i])
            state.mask, state.where = union(state.mask, mask), state.where or where
            _keep(args[i], state)
    for i, x in enumerate(results):
        if not is_key(x):
            continue
        if i not in uses.forwards:
            _keep(x, _State(i not in uses.sources, where))
            continue
        origin = args[uses.forwards[i]]
        state = _state(origin)
        if origin.size == 1:
            _keep(origin, state)
        else:
            state = _State(state.mask, state.where)
        _keep(x, state)
