"""What programs do to their process, and what a command that reports on them makes of it."""

from __future__ import annotations

import io
import os
import sys

import pytest

from shardwise.cli.endings import Output, report_at_exit
from shardwise.cli.program import UserProgram


def _another_file(path):
    with path.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())


OUTPUTS = {
    "left alone": lambda path: None,
    "closed": lambda path: sys.stdout.close(),
    "its file closed": lambda path: os.close(sys.stdout.fileno()),
    "none": lambda path: setattr(sys, "stdout", None),
    "an object": lambda path: setattr(sys, "stdout", io.StringIO()),
    "another file": _another_file,
}


@pytest.mark.parametrize(
    "name, apart", [(n, False) for n in OUTPUTS] + [(n, True) for n in ("left alone", "none", "an object")]
)
def test_standard_output_is_that_of_the_beginning(name, apart, tmp_path, monkeypatch):
    files = [os.open(tmp_path / name, os.O_CREAT | os.O_RDWR) for name in ("out", "err")]
    for stream, file in zip(("stdout", "stderr"), files, strict=True):
        monkeypatch.setattr(sys, stream, os.fdopen(os.dup(file), "w", closefd=False))
    output = Output(apart)
    OUTPUTS[name](tmp_path / "log")
    with output.restore():
        print("page", flush=True)
        restored = sys.stdout
    print("later", flush=True)
    restored.close()
    out, err = [os.pread(file, 99, 0).decode() for file in files]
    assert (out, err) == (("page\n", "later\n") if apart else ("page\nlater\n", ""))


class EndedReferenceError(Exception):
    """In place of the end of the process."""


@pytest.mark.parametrize(
    "end, reported, given",
    [
        (lambda: os._exit(3), [3], (13,)),
        (lambda: os.execv(sys.executable, ["python"]), [0], (sys.executable, ["python"])),
        (lambda: os.execve("no such file", ["x"], {}), [], ("no such file", ["x"], {})),
        (lambda: os.execlp(sys.executable, "python"), [0], (sys.executable, ("python",))),
    ],
)
def test_reports_are_made_before_a_program_ends_at_once(end, reported, given, monkeypatch, capsys):
    def ended(*args):
        raise EndedReferenceError(*args)

    for name in ("_exit", "execv", "execve"):
        monkeypatch.setattr(os, name, ended)
    statuses = []

    def report(status):
        statuses.append(status)
        return status + 10

    with pytest.raises(EndedReferenceError) as raised, report_at_exit(report):
        end()
    assert statuses == reported and raised.value.args == given
    assert os._exit is ended and os.execv is ended
    assert ("puts another in its place" in capsys.readouterr().err) == (reported == [0])


def test_a_module_of_a_package_says_how_to_run_it(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "models").mkdir()
    (tmp_path / "pack" / "models" / "__init__.py").touch()
    file = UserProgram("file", str(tmp_path / "pack" / "models" / "train.py"))
    error = ImportError("attempted relative import with no known parent package")  # as Python has it
    assert f"give -m pack.models.train in its place, from the folder {tmp_path}" in file.as_module(error)
    assert file.as_module(ImportError("no module")) == "" == UserProgram("code", "").as_module(error)
