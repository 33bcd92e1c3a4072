"""The programs of this directory as one process of 8 devices, as 2 processes of 4 and as 4 of 2; and what faults do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.distributed.launching import command, environment, needs_mpi

PROGRAMS = Path(__file__).parent / "programs"


def launch(
    processes: int, program: str, *arguments: str, devices: int | None = None
) -> subprocess.CompletedProcess[str]:
    arguments = (sys.executable, str(PROGRAMS / program), *arguments)
    return subprocess.run(
        command(processes, [*arguments]),
        env=environment(devices or 8 // processes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


QUICK = [
    "collectives.py",
    "computations.py",
    "host_local.py",
    "left_out.py",
    "host_values.py",
    "mapped.py",
    "idle.py",
    "rings.py",
    "uneven.py",
]
LONG = ["any_order.py", "layouts.py", "halos.py", "along.py"]  # under 4 processes alone
RUNS = {1: ["computations.py", "mapped.py"], 2: QUICK, 4: QUICK + LONG}


@pytest.mark.parametrize(
    ("program", "processes"),
    [
        pytest.param(name, count, marks=[needs_mpi] if count > 1 else [])
        for count, names in RUNS.items()
        for name in names
    ],
)
def test_same_results(program, processes):
    done = launch(processes, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == processes, done.stdout + done.stderr


@needs_mpi
def test_sums_that_loops_add_up_are_sent_once():
    done = launch(4, "late_sums.py", devices=1)
    assert done.returncode == 0 and done.stdout.count("done") == 4, done.stdout + done.stderr


@needs_mpi
@pytest.mark.parametrize(
    "fault, told",
    [
        (
            "other_op",
            ["process 0: <lambda> with all_reduce[", "kind=sum", "process 1: <lambda> with all_reduce[", "kind=max"],
        ),
        ("other_shape", ["f32[2]", "f32[4]"]),
        ("other_order", ["kind=sum", "kind=max", "in the same order"]),
        ("raises", ["process 1 of 2 failed (KeyError: 'data file is missing'); the whole job ends"]),
        (
            "absent",
            [
                "process 0 of 2 has waited longer than 2 s",
                "process 0 has waited for",
                "process 1 is busy at",
                "faults.py:",
            ],
        ),
        ("ends_early", ["process 1: the end of the program", "process 0: sum with all_reduce"]),
        ("exits", ["process 0: the end of the program"]),
        ("swallows", ["process 0 of 2 has waited longer than 2 s", "process 1"]),
        ("killed", ["Killed (signal 9)", "process 1 of 2 (pid", "while the others go on; the whole job ends"]),
        ("leaves", ["process 1: the end of the program", "process 0: sum with all_reduce"]),
        (
            "stopped",
            ["process 0 of 2 has waited longer than 2 s", "the first use of devices", "process 1 does not answer"],
        ),
        ("killed_within", ["Killed (signal 9)"]),
        (
            "out_of_memory",
            ["process 1 of 2 failed (OutOfMemory: RESOURCE_EXHAUSTED: Out of memory allocating", "the whole job ends"],
        ),
        ("diverges", ["process 0: max with all_reduce[", "process 1: sum with all_reduce["]),
    ],
)
def test_faults_end_the_job(fault, told):
    done = launch(2, "faults.py", fault, devices=2)  # within its time limit
    assert done.returncode != 0
    for text in told:
        assert text in done.stderr + done.stdout, done.stderr


@needs_mpi
@pytest.mark.parametrize("fault, ranks", [("all_raise", "processes 0, 1"), ("raises", "process 1")])
def test_one_report_for_all_processes_that_fail_alike(fault, ranks):
    told = launch(2, "faults.py", fault, devices=2).stderr
    assert told.count("Traceback (most recent call last)") == 1 and told.count("shardwise: process") == 1, told
    assert f"shardwise: {ranks} of 2 failed (" in told


@needs_mpi
@pytest.mark.parametrize("fault", ["other_op", "other_shape", "other_order", "threads"])
def test_divergence_raises_everywhere(fault):
    done = launch(2, "faults.py", fault, "caught", devices=2)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 caught; then 120.0", "1 caught; then 120.0"]


@needs_mpi
def test_slow_is_no_fault():
    done = launch(2, "faults.py", "slow", devices=2)
    assert (done.returncode, done.stdout.split()) == (0, ["120.0", "120.0"]), done.stderr


@needs_mpi
def test_nobody_is_within_mpi_as_it_ends():
    done = launch(2, "faults.py", "asked_as_it_ends", devices=2)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["at rest", "at rest"]), done.stderr


@needs_mpi
@pytest.mark.parametrize("fault", ["interrupted", "interrupted_in_vain"])
def test_an_interrupt_ends_all_processes(fault):
    arguments = command(2, [sys.executable, str(PROGRAMS / "faults.py"), fault])
    with subprocess.Popen(
        arguments,
        env=environment(2),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as launcher:
        assert launcher.stdout is not None
        processes = [int(launcher.stdout.readline()) for _ in range(2)]
        time.sleep(0.5)
        launcher.send_signal(signal.SIGINT)
        try:
            _, told = launcher.communicate(timeout=60)
        finally:
            launcher.kill()
    assert launcher.returncode != 0
    said = {"interrupted": "KeyboardInterrupt", "interrupted_in_vain": "process 0 of 2 was interrupted while it waited"}
    assert said[fault] in told
    end = time.monotonic() + 30
    while any(map(is_alive, processes)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_alive, processes))


def is_alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@needs_mpi
def test_without_initialize():
    done = launch(2, "alone.py", devices=2)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["1 process, 2 devices"] * 2
    assert done.stderr.count("This is one of 2 processes, but distributed.initialize() was not called") == 2
