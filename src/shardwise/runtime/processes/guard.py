"""A small process beside those of one machine that says who of them died without a word: `guard.py SIZE RANK:PID...`.

A process that is killed, or that a library ends, says nothing, and the launcher ends the others some milliseconds later. They
have a connection each to this one, on the listening socket that is its stdin; they send their place in the list, and later one more
byte as they leave in good order. Run by path, with the standard library alone, so that it is there at once.
"""

import contextlib
import os
import select
import signal
import socket
import sys

_CONNECT = 60.0  # seconds until all processes have their connection


def cause(pid: int) -> tuple[str, int | None]:
    """What ends a process, as long as its parent has not asked for it; and the exit code, if it left by itself."""
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


def main():
    """Watch until all are gone."""
    size, *named = sys.argv[1:]
    told = [tuple(map(int, text.split(":"))) for text in named]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the others, who then leave
        signal.signal(number, signal.SIG_IGN)
    poll, peers, ends = select.epoll(), {}, set()  # gives events in the order in which they came, however late we look
    for _, pid in told:
        try:
            ends.add(os.pidfd_open(pid))
        except OSError:  # it is gone already
            continue
    for descriptor in ends:
        poll.register(descriptor, select.EPOLLIN)
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
    while ends:
        for descriptor, _ in poll.poll():
            if descriptor in ends:
                poll.unregister(descriptor)
                ends.discard(descriptor)
            elif descriptor in peers:
                peer, place = peers.pop(descriptor)
                poll.unregister(descriptor)
                in_order = False
                with contextlib.suppress(OSError):
                    in_order = bool(peer.recv(1))
                if not in_order and not left:
                    rank, pid = told[place]
                    what, code = cause(pid)
                    text = f"shardwise: process {rank} of {size} (pid {pid}) {what} while the others go on; the whole job ends.\n"
                    os.write(2, text.encode())
                    for other, (_, its) in enumerate(told):
                        if code == 0 and other != place:  # the launcher would take it for a success
                            os.kill(its, signal.SIGTERM)
                left = True


if __name__ == "__main__":
    main()
