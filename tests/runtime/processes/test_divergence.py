"""Reasons for what differs between processes, from what each of them tells."""

from __future__ import annotations

from shardwise.runtime.processes.divergence import Evidence, apart, first_of_its_own, reasons
from shardwise.runtime.processes.origin import FEW, RECENT, History, SharedProgram

BOTH = (0, 1)


def told(number=1, lines=(), arguments=(), recent=()):
    return Evidence(number, lines, arguments, recent)


def test_reasons():
    assert reasons([told(), None]) == ["", ""]
    assert reasons([told()] * 3) == ["", "", ""]
    programs = [told(1, [(b"a", "mul"), (b"b", "sin")]), told(2, [(b"a", "mul"), (b"c", "cos")])]
    assert reasons(programs) == ["the first equation of its own: sin", "the first equation of its own: cos"]
    values = [told(1, (), [(5, "x", False), (k, f"rate = {k}", True)]) for k in (1, 2)]
    assert [text.rpartition(": ")[2] for text in reasons(values)] == ["rate = 1", "rate = 2"]
    arrays = [told(1, (), [(k, "x", False)], [(9, "f"), (k, f"mul{k}"), (k + 50, "this call")]) for k in (1, 2)]
    assert reasons(arrays) == ["x was made otherwise, by mul1", "x was made otherwise, by mul2"]


def test_first_of_its_own():
    assert first_of_its_own([[(1, "a"), (2, "b")], [(1, "a"), (3, "c")], [(1, "a")]]) == ["b", "c", None]


def test_apart():
    assert not apart([[1, 2, 3], [3, 1, 2]])
    assert not apart([[1, 2, 3], [1, 2]])  # one has done more, which is its own
    assert apart([[1, 2, 3], [1, 2, 4]])
    assert apart([[1, 1], [1, 2]])
    assert apart([[1], [1], [2]])


def test_history_adds_up_in_any_order():
    program = SharedProgram(BOTH, "f", 7, "")
    one, other = History(), History()
    for history, numbers in ((one, range(3 * FEW)), (other, reversed(range(3 * FEW)))):
        for number in numbers:
            history.notes.append((number, program))
            if len(history.notes) > FEW:
                history.shorten()
    assert one.totals() == other.totals() == {BOTH: (3 * FEW, sum(range(3 * FEW)))}
    assert one.known_origins(BOTH) is None  # too many
    assert len(one.recent()) == RECENT
    one.forget(BOTH)
    assert one.totals() == {} and one.known_origins(BOTH) == []


def test_history_counts_what_is_made_of_own_parts():
    history = History()
    first, second = history.make_origin(BOTH, 5), history.make_origin(BOTH, 5)
    assert first != second
    history.forget((0, 2))
    assert history.make_origin(BOTH, 5) not in (first, second)
    history.forget(BOTH)
    assert history.make_origin(BOTH, 5) == first
