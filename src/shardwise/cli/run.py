"""`shardwise run`: a JAX program, unchanged, with `jax` standing for shardwise."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from shardwise import alias
from shardwise.base import config
from shardwise.base.dialect import DIALECTS
from shardwise.cli import notebook

NAME = "run"
_OPTIONS = ("--devices", "--dialect")
_CHILDREN = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "children"
)  # found by the Python that a child runs


class UsageError(Exception):
    """An invalid command line; the message is for the user."""


def register(commands: Any) -> None:
    """Add the command `run` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="run a JAX program or notebook unchanged",
        description="Run a Python program, or the code cells of a notebook, with `import jax` meaning shardwise.",
        epilog="OPTIONS may also stand right behind PROGRAM; what follows them, or a `--`, goes to the program.",
        usage="shardwise run [OPTIONS] PROGRAM [ARGUMENTS ...]",
        allow_abbrev=False,
    )
    parser.add_argument("program", metavar="PROGRAM", help="a .py file or an .ipynb notebook")
    parser.add_argument("--devices", type=_device_count, metavar="N", help="number of virtual CPU devices")
    add_dialect(parser)
    parser.set_defaults(carry_out=_carry_out)


def add_dialect(parser: argparse.ArgumentParser) -> None:
    """Add the option --dialect."""
    parser.add_argument(
        "--dialect",
        choices=tuple(DIALECTS),
        help="behave and print as " + ", ".join(f"JAX {d.jax_version} ({d.name})" for d in DIALECTS.values()),
    )


def take_dialect(options: argparse.Namespace) -> None:
    """Let programs have the dialect that the options name, if they do."""
    if options.dialect is not None:
        config.update("shardwise_dialect", options.dialect)


def own_words(words: list[str], options: Collection[str] = _OPTIONS) -> tuple[list[str], list[str]]:
    """Split the arguments after a command into its own and those of the program. `options` are its own, which take a value each.

    Argparse cannot: our options may stand before PROGRAM and right behind it, while a program may have options of the
    same names further on.
    """
    own: list[str] = []
    rest, program_seen = list(words), False
    while rest:
        name = rest[0].partition("=")[0]
        if rest[0].startswith("-") and rest[0] != "--" and (not program_seen or name in options):
            width = 2 if rest[0] in options else 1
            program_seen = program_seen or name == "-m"
        elif program_seen:
            break
        else:
            program_seen, width = True, 1
        own += rest[:width]
        rest = rest[width:]
    return own, rest[1:] if rest[:1] == ["--"] else rest


def _device_count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of devices; give an integer of at least 1")
    return count


def checked_path(program: str) -> Path:
    """The file of a program; UsageError if there is none."""
    path = Path(program)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give a .py file or an .ipynb notebook")
    if not path.exists():
        raise UsageError(f"there is no file {path}")
    return path


def _carry_out(options: argparse.Namespace) -> int:
    path = checked_path(options.program)
    take_dialect(options)
    if options.devices is not None:
        config.update("jax_num_cpu_devices", options.devices)
    alias.install()
    _prepare_children(options)
    try:
        execute(path, options.arguments)
    except UsageError:
        raise
    except Exception as error:
        report(error)
        sys.exit(1)
    return 0


def execute(path: Path, arguments: Sequence[str]) -> None:
    """Run the program at `path` as ``__main__``. Its exceptions pass through.

    Raises:
        UsageError: it is a notebook that cannot be run.
    """
    # The program sees the interpreter's state that `python PROGRAM ARGUMENTS` would give it.
    sys.argv = [str(path), *arguments]
    sys.path[0:1] = [str(path.resolve().parent)]
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path), __builtins__=__builtins__)
    sys.modules["__main__"] = module
    try:
        if path.suffix == ".ipynb":
            notebook.run(path, module.__dict__)
        else:
            exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except notebook.NotebookError as error:
        raise UsageError(str(error)) from None


def _prepare_children(options: argparse.Namespace) -> None:
    """Processes that the program starts with this Python mean shardwise by `jax`, too, with the same devices and dialect.

    They inherit it with the environment: a child that is given another PYTHONPATH, or ignores it (`python -I`), does not.
    """
    environment = os.environ
    if options.dialect is not None:
        environment["SHARDWISE_DIALECT"] = options.dialect
    if options.devices is not None:
        environment["JAX_NUM_CPU_DEVICES"] = str(options.devices)
    before = environment.get("PYTHONPATH")
    paths = [entry for entry in before.split(os.pathsep) if entry != _CHILDREN] if before else []
    environment["PYTHONPATH"] = os.pathsep.join([_CHILDREN, *paths])
    environment["SHARDWISE_RUN_PREFIX"] = sys.prefix


def report(error: Exception) -> None:
    """Show the program's failure as Python would, without the frames of this command."""
    error.__traceback__ = _from_program(error.__traceback__)
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(error)  # unlike Python's own hook, it knows the text of notebook cells
    else:
        sys.excepthook(type(error), error, error.__traceback__)


def _from_program(frames: TracebackType | None) -> TracebackType | None:
    here = os.path.dirname(__file__)
    while frames is not None and os.path.dirname(frames.tb_frame.f_code.co_filename) == here:
        frames = frames.tb_next
    return frames
