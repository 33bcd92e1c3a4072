"""The example that trains: its losses are the same in every layout on any number of devices and processes."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GPT = ROOT / "examples" / "gpt.py"
TINY = "--layers 1 --width 64 --heads 4 --context 8 --batch 64 --sample 12".split()
LAYOUTS = ("replicated", "data", "fsdp", "tensor")
CURVES = {}


def command(*arguments, processes=1):
    launch = []
    if processes > 1:
        pytest.importorskip("mpi4py")
        launch = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(processes)]
    return [*launch, sys.executable, str(GPT), *TINY, *arguments]


def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_"))}
    kept.pop("PYTHONUNBUFFERED", None)
    return kept | {
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "120",
        "OMP_NUM_THREADS": "1",
    }


def curves(output):
    """The losses that the table shows, by layout."""
    rows = re.findall(r"^│ (\w+) +│(.*)│[^│]*│$", output, re.MULTILINE)
    return {layout: [float(cell) for cell in cells.split("│")] for layout, cells in rows}


@pytest.mark.parametrize(("devices", "processes"), [(1, 1), (8, 1), (64, 1), (8, 2)])
def test_losses_agree(devices, processes):
    arguments = ("--layout", "all", "--steps", "4", "--devices", str(devices // processes))
    done = subprocess.run(
        command(*arguments, processes=processes),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"Losses on {devices} devices") == 1  # one process prints
    found = curves(done.stdout)
    assert tuple(found) == LAYOUTS
    CURVES.setdefault("first", found["replicated"])
    for layout, curve in found.items():
        assert curve == pytest.approx(CURVES["first"], abs=2e-4), layout
    losses = found["replicated"]
    assert 4.5 < losses[0] < 5.5  # about log(128): nothing is known
    assert losses[-1] < losses[0] - 0.2
    *_, text = done.stdout.partition("unseen text")
    assert re.search(r"^The whale ", text, re.MULTILINE)
    assert len(text.partition("The whale ")[2].rstrip("\n")) <= 12


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if other tests have loaded it, warns
def test_interrupt_ends_it_cleanly():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("--steps", "1000000"),
        env=environment() | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=heed_interrupts,
    )
    os.close(theirs)
    shown = b""
    try:
        while (piece := read(ours)) is not None:
            shown += piece
            if re.search(rb"[1-9]\d*/1000000", shown):
                process.send_signal(signal.SIGINT)
                break
        while (piece := read(ours)) is not None:
            shown += piece
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = shown.decode()[-2000:]
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert re.search(r"stopped after \d+ of 1000000 steps \(tensor\), at a loss of \d\.\d{3}", text), text


def heed_interrupts():
    """What a shell starts in the background is told to ignore Ctrl-C, and so would be its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def read(terminal):
    """What a terminal shows next; None at its end."""
    try:
        return os.read(terminal, 4096) or None
    except OSError:
        return None
