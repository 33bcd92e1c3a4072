"""Processes that no launcher starts: they meet at an address, or are told why they do not."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from shardwise.runtime.processes import coordinator
from shardwise.runtime.processes.coordinator import mapping_of
from tests.distributed.launching import environment, missing, needs_mpi

PROGRAMS = Path(__file__).parent / "programs"
EndedReferenceError = tuple[int, str, str]  # the exit status, standard output, standard error


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def started(
    program: str, *words: str, ids: Sequence[int], count: int, port: int, **settings: str
) -> Generator[list[subprocess.Popen[str]]]:
    """Processes with these numbers; what is left of them at the end is killed."""
    jobs = []
    for number in ids:
        own = {
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": str(count),
            "JAX_PROCESS_ID": str(number),
        }
        jobs.append(
            subprocess.Popen(
                [sys.executable, str(PROGRAMS / program), *words],
                env=environment(8 // count) | own | settings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
        )
    try:
        yield jobs
    finally:
        for job in jobs:
            job.kill()


def ends(jobs: list[subprocess.Popen[str]]) -> list[EndedReferenceError]:
    told = [job.communicate(timeout=120) for job in jobs]
    return [(job.returncode, out, err) for job, (out, err) in zip(jobs, told, strict=True)]


def run(how: str, ids: Sequence[int] = (0, 1), count: int = 2, **settings: str) -> list[EndedReferenceError]:
    with started("by_hand.py", how, ids=ids, count=count, port=free_port(), **settings) as jobs:
        return ends(jobs)


@needs_mpi
@pytest.mark.parametrize(
    "program, count", [("by_hand.py", 4), ("collectives.py", 2), ("layouts.py", 4), ("host_values.py", 2)]
)
def test_programs_run_as_under_a_launcher(program, count):
    with started(program, "meets", ids=range(count), count=count, port=free_port()) as jobs:
        for status, out, err in ends(jobs):
            assert (status, out.split()[:1], err) == (0, ["done"], "")


@needs_mpi
def test_process_0_comes_last():
    port = free_port()
    with started("by_hand.py", "meets", ids=[1], count=2, port=port) as early:
        time.sleep(1)
        with started("by_hand.py", "meets", ids=[0], count=2, port=port) as late:
            assert [end[:2] for end in ends(early + late)] == [(0, "done 2\n")] * 2


@needs_mpi
def test_who_does_not_come_is_named():
    for status, _, err in run("meets", [0, 2], 4, SECONDS_TO_COME="3"):
        assert status == 1
        assert "processes 1, 3 of 4 have not come to distributed.initialize within 3 s (initialization_timeout)" in err


@needs_mpi
def test_process_0_does_not_come():
    ((status, _, err),) = run("meets", [1], SECONDS_TO_COME="2")
    assert status == 1
    assert "DEADLINE_EXCEEDED: nobody listens at the coordinator_address 127.0.0.1:" in err
    assert "process 0 has not come to distributed.initialize" in err


@needs_mpi
def test_other_counts():
    port = free_port()
    with (
        started("by_hand.py", "meets", ids=[0], count=2, port=port) as two,
        started("by_hand.py", "meets", ids=[1], count=4, port=port) as four,
    ):
        for status, _, err in ends(two + four):
            assert status == 1
            assert "was given num_processes=4, and process 0 2" in err


@needs_mpi
def test_a_number_given_twice():
    told = run("meets", [0, 1, 1], 3)
    assert [status for status, _, _ in told] == [1, 1, 1]
    assert all("process_id=1 was given twice: to process 1 (pid " in err for _, _, err in told)


def test_who_comes_after_a_refusal_is_told_why():
    def come(rank: int) -> str:
        peer = socket.create_connection(("127.0.0.1", port), 60)
        peer.sendall(json.dumps({"rank": rank, "count": 3, "pid": 7, "host": "here", "machine": ""}).encode() + b"\n")
        peers.append(peer)
        return peer.recv(1 << 12).decode() if len(peers) > 1 else ""

    peers: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        helper = subprocess.Popen([sys.executable, "-I", "-S", coordinator.__file__, "3", "60"], stdin=server.fileno())
    come(1)
    told = {come(1), come(0), peers[0].recv(1 << 12).decode()}
    twice = "process_id=1 was given twice: to process 1 (pid 7 on here), and to process 1 (pid 7 on here)"
    assert told == {json.dumps({"error": twice}) + "\n"}
    for peer in peers:
        peer.close()
    assert helper.wait(60) == 0


@needs_mpi
@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_the_port_is_taken(says):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        settings = {"SECONDS_TO_COME": "2"}
        with started("by_hand.py", "meets", ids=[0, 1], count=2, port=port, **settings) as jobs:
            server.settimeout(60)
            peer, _ = server.accept()
            with peer:
                peer.sendall(says)
                if says:
                    peer.shutdown(socket.SHUT_WR)
                (one, _, first), (other, _, second) = ends(jobs)
    assert (one, other) == (1, 1)
    assert f"process 0 cannot listen at 127.0.0.1:{port} (Address already in use" in first
    assert ("answers b'HTTP/1.1 400" if says else "has not answered within 2 s") in second


@needs_mpi
@pytest.mark.parametrize("how", ["killed", "raises"])
def test_a_process_that_is_lost_ends_all(how):
    *others, (lost, _, said) = run(how, [0, 1, 2, 3], 4)
    assert lost == {"killed": -9, "raises": 1}[how]
    assert how == "killed" or "OSError: no data here" in said + others[0][2]
    for rank, (status, out, err) in enumerate(others):
        assert (status, out) == (1, "")
        assert "shardwise: process 3 (pid " in err
        assert f"{'is gone' if how == 'killed' else 'has failed'}; process {rank} of 4 ends, too." in err


@needs_mpi
@pytest.mark.parametrize("how", ["leaves", "some leave"])
def test_leaving_without_exit_handlers(how):
    told = run(how)
    assert [err for _, _, err in told] == ["", ""]
    assert told[1][0] == 0


@needs_mpi
def test_processes_that_differ_say_so():
    told = run("differ")
    assert [status for status, _, _ in told] == [1, 1]
    assert "are about to do different things together" in told[0][2] + told[1][2]


ARGUMENTS = """
import shardwise as jax
try:
    jax.distributed.initialize({arguments})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "arguments, settings, told",
    [
        (
            "'node:1234'",
            {},
            "ValueError distributed.initialize got a coordinator_address, and num_processes is missing.",
        ),
        (
            "'node:1234', 2",
            {},
            "ValueError distributed.initialize got a coordinator_address, and process_id is missing.",
        ),
        ("'node', 2, 0", {}, "ValueError coordinator_address='node' is no address; give one as host:port"),
        ("'node:1234', 2, 2", {}, "ValueError process_id=2 is no number of one of 2 processes"),
        ("'node:1234', 2, -1", {}, "ValueError process_id=-1 is out of range; it is an integer of at least 0."),
        (
            "'node:1234', process_id=0",
            {"JAX_NUM_PROCESSES": "many"},
            "ValueError JAX_NUM_PROCESSES='many' is no number",
        ),
        ("", {"JAX_COORDINATOR_ADDRESS": "node:1"}, "ValueError distributed.initialize got a coordinator_address"),
        ("'node:1', 2, 0, coordinator_bind_address='x'", {}, "ValueError coordinator_bind_address='x' is no address"),
    ],
)
def test_arguments(shell, arguments, settings, told):
    done = shell("-c", ARGUMENTS.format(arguments=arguments), **settings)
    assert done.stdout.startswith(told)


def test_without_mpi4py(shell):
    program = "import sys; sys.modules['mpi4py'] = None\n" + ARGUMENTS.format(arguments="'node:1234', 2, 0")
    assert "RuntimeError this is one of 2 processes, but mpi4py" in shell("-c", program).stdout


@pytest.mark.skipif(missing, reason="needs mpi4py")
def test_an_mpi_that_starts_by_its_own_launcher_only(monkeypatch):
    from shardwise.runtime.processes import start

    monkeypatch.setattr(start, "library_name", lambda version: "Open MPI v5.0.8")
    with pytest.raises(NotImplementedError, match=r"^Open MPI v5.0.8 starts processes by its own launcher only"):
        start.check_gathers()


@pytest.mark.parametrize(
    "machines, mapping",
    [
        ([0, 0, 0, 0], "(vector,(0,1,4))"),
        ([0, 0, 1, 1, 2, 2], "(vector,(0,3,2))"),
        ([0, 1, 0, 1], "(vector,(0,2,1),(0,2,1))"),
        ([0, 0, 1], "(vector,(0,1,2),(1,1,1))"),
    ],
)
def test_machines_as_mpi_reads_them(machines, mapping):
    assert mapping_of(machines) == mapping
