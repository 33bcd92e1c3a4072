"""The promotion settings refuse, and warn about, the calls that they refuse in JAX, and no others."""

from __future__ import annotations

import zlib

import pytest

import shardwise as sw
from tests.calls import policies
from tests.calls.beside import Library
from tests.calls.record import every_call

# Calls that differ, and why.
EXCUSED = {
    "JAX says False where the setting refuses the comparison; here it refuses": """
        numpy.array_equiv(v, m)|numpy.array_equiv(n, v)""",
    "JAX meets its own 1-d points; nothing that the user gave is promoted": """
        numpy.trapezoid(m, w)|scipy.integrate.trapezoid(m, w)""",
    "JAX takes the shape of the parameters twice, and meets that": """
        random.double_sided_maxwell(k, loc=v, scale=w, shape=(3,))""",
    "JAX mixes bool and int in its own loop": """
        scipy.special.hyp1f1(w, p, p)|scipy.special.hyp1f1(a=1.5, b=2.0, x=p)""",
}
SHARE = 30  # the default run asks about what JAX refuses and one other call in so many


pytestmark = pytest.mark.usefixtures("latest")


def excused() -> set[str]:
    return {call.strip() for calls in EXCUSED.values() for call in calls.split("|")}


def differing(share: int, refused_share: int) -> list[str]:
    """What differs from JAX among one call in `share`, and one in `refused_share` of those that JAX refuses."""
    known, ours, found = policies.recorded(), Library("shardwise"), []
    refused = {call for calls in known.values() for call in calls}
    for call in every_call():
        chosen = zlib.crc32(repr(call).encode()) % (refused_share if repr(call) in refused else share) == 0
        if not chosen or repr(call) in excused() or not policies.works(ours, call):
            continue
        for policy, calls in known.items():
            said = policies.answer(ours, call, policy)
            if said != calls.get(repr(call), ""):
                found.append(f"{call} under {policy}: {said!r}, JAX {calls.get(repr(call), '')!r}")
    return found


def test_calls_are_refused_as_in_jax() -> None:
    assert differing(SHARE, 3) == []


@pytest.mark.slow
def test_all_calls_are_refused_as_in_jax() -> None:
    assert differing(1, 1) == []


def test_excused_calls_exist() -> None:
    assert excused() <= {repr(call) for call in every_call()}


@pytest.mark.record
def test_the_record_is_what_jax_says() -> None:
    known, jax = policies.recorded(), Library("jax")
    chosen = [call for call in every_call() if zlib.crc32(repr(call).encode()) % 60 == 0]
    names: set[str] = {repr(call) for call in chosen}
    expected = {policy: {k: v for k, v in calls.items() if k in names} for policy, calls in known.items()}
    assert policies.answers(jax, chosen) == expected
    assert any(expected.values())


def test_a_warning_points_at_the_caller() -> None:
    import shardwise.numpy as jnp

    with (
        sw.numpy_rank_promotion("warn"),
        pytest.warns(UserWarning, match="Following NumPy automatic rank promotion for add on shapes") as caught,
    ):
        jnp.add(jnp.ones((2, 3)), jnp.ones(3))
    assert caught[0].filename == __file__
