"""A small process beside those of one machine that says who of them died or failed, and how: `guard.py SIZE POLL RANK:PID:PIDFD...`.

A process that is killed, or that a library ends, says nothing, and the launcher ends the others some milliseconds later. They
have a connection each to this one, on the listening socket that is its stdin; they send their place in the list, and later one more
byte as they leave in good order. A process that fails sends its message; equal messages are shown once. POLL is an epoll object that has
watched every PIDFD since before the processes went on: on a loaded machine all of them may be gone by the time that this process has
started. Run by path, with the standard library alone, so that it is there soon.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time

_TOGETHER = 1.0  # seconds in which failures of several processes count as one
_CONNECT = 60.0  # seconds until all processes have their connection


def cause(pid: int) -> tuple[str, int | None]:
    """The reason why a process ends, as long as its parent has not asked for it; and the exit code, if it left by itself."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            status = int(file.read().rpartition(")")[2].split()[-1])
    except (OSError, ValueError):
        return "is gone", None
    if not os.WIFSIGNALED(status):
        return f"left with the exit code {os.WEXITSTATUS(status)}", os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in set(signal.Signals) else "?"
    return f"was killed by signal {number} ({name})", None


def ranks_text(ranks: list[int]) -> str:
    """Ranks in order, as in ``process 2`` or ``processes 0-3, 7``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs)
    return f"process{'es' if len(ranks) > 1 else ''} {text}"


def report_of(peer: socket.socket) -> tuple[str, str]:
    """The report of a failing process: its traceback, and the error in a few words."""
    length, data = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "little"), b""
    while len(data) < length:
        part = peer.recv(length - len(data))
        if not part:
            break
        data += part
    text, _, what = data.decode(errors="replace").partition("\0")
    return text, what


def show(reports: list[tuple[int, socket.socket, tuple[str, str]]], size: str) -> None:
    """Print the reports, a list of (rank, peer, report), once each; the processes then go on to their end."""
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, _, report in reports:
        groups.setdefault(report, []).append(rank)
    for (text, what), ranks in groups.items():
        failed = f"shardwise: {ranks_text(ranks)} of {size} failed ({what}); the whole job ends.\n" if what else ""
        with contextlib.suppress(OSError):
            os.write(2, (text + failed).encode())
    for _, peer, _ in reports:
        with contextlib.suppress(OSError):
            peer.send(b"K")


def by_end(events: list[tuple[int, int]], pidfds: dict[int, int]) -> list[tuple[int, int]]:
    """Events in the order in which the processes ended.

    Connections that were closed before they were watched come in the order in which they were made, which says nothing; the `pidfds`, by
    connection, were watched before.
    """
    order = {descriptor: number for number, (descriptor, _) in enumerate(events) if descriptor not in pidfds}
    return sorted(events, key=lambda event: order.get(pidfds.get(event[0], event[0]), len(events)))


def tell_end(told: list[tuple[int, ...]], place: int, size: str) -> None:
    """Say how a process ended while the others go on; end these, if it ended as if the job had succeeded."""
    rank, pid, _ = told[place]
    what, code = cause(pid)
    os.write(
        2,
        f"shardwise: process {rank} of {size} (pid {pid}) {what} while the others go on; the whole job ends.\n".encode(),
    )
    for other, (_, its, _) in enumerate(told):
        if code == 0 and other != place:  # the launcher would take it for a success
            os.kill(its, signal.SIGTERM)


def main():
    """Watch until all are gone."""
    size, waits_at, *named = sys.argv[1:]
    told = [tuple(map(int, text.split(":"))) for text in named]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the others, who then leave
        signal.signal(number, signal.SIG_IGN)
    poll = select.epoll.fromfd(int(waits_at))  # gives events in the order in which they came, however late we look
    peers, ends = {}, {descriptor for *_, descriptor in told}
    listening = socket.socket(fileno=0)
    listening.settimeout(_CONNECT)
    left = False
    try:
        for _ in told:
            peer, _ = listening.accept()
            peer.settimeout(_CONNECT)
            peers[peer.fileno()] = peer, int.from_bytes(peer.recv(4), "little")
            poll.register(peer, select.EPOLLIN)
    except OSError:
        return
    reports: list[tuple[int, socket.socket, tuple[str, str]]] = []
    deadline = None
    late = by_end(poll.poll(0), {descriptor: told[place][2] for descriptor, (_, place) in peers.items()})
    while ends:
        waits = None if deadline is None else max(0.0, deadline - time.monotonic())
        events, late = late or poll.poll(waits), []
        if deadline is not None and (time.monotonic() >= deadline or len(reports) == len(peers)):
            show(reports, size)
            reports, deadline, left = [], None, True
        for descriptor, _ in events:
            if descriptor in ends:
                poll.unregister(descriptor)
                ends.discard(descriptor)
            elif descriptor in peers:
                peer, place = peers[descriptor]
                word = b""
                with contextlib.suppress(OSError):
                    word = peer.recv(1)
                    if word == b"R":
                        reports.append((told[place][0], peer, report_of(peer)))
                        deadline = deadline or time.monotonic() + (_TOGETHER if len(reports) < len(peers) else 0)
                        continue
                del peers[descriptor]
                poll.unregister(descriptor)
                if not word and not left:  # it left, but not in good order
                    tell_end(told, place, size)
                left = True


if __name__ == "__main__":
    main()
