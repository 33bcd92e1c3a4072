"""`shardwise run`: a JAX program, unchanged, with `jax` standing for shardwise."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from shardwise import alias
from shardwise.base import config
from shardwise.cli.program import Program, UsageError, add_program, own_words, report, set_dialect

NAME = "run"
_CHILDREN = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "children"
)  # found by the Python that a child runs


def register(commands: Any) -> None:
    """Add the command `run` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="run a JAX program or notebook unchanged",
        description="Run a Python program, or the code cells of a notebook, with `import jax` meaning shardwise.",
        epilog="OPTIONS may also stand right behind PROGRAM; what follows them, or a `--`, goes to the program.",
        usage="shardwise run [OPTIONS] (PROGRAM | -m MODULE | -c CODE | -) [ARGUMENTS ...]",
        allow_abbrev=False,
    )
    add_program(parser)
    parser.add_argument("--devices", type=device_count, metavar="N", help="number of virtual CPU devices")
    parser.set_defaults(carry_out=_carry_out, parser=parser)


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of this command and those of the program."""
    return own_words(words, ("--devices", "--dialect"))


def device_count(text: str) -> int:
    """The number of devices that a word says."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of devices; give an integer of at least 1")
    return count


def _carry_out(options: argparse.Namespace) -> int:
    program = Program.of(options)
    set_dialect(options)
    if options.devices is not None:
        config.update("jax_num_cpu_devices", options.devices)
    alias.install()
    _prepare_children(options)
    try:
        program.execute()
    except UsageError:
        raise
    except Exception as error:
        report(error)
        sys.exit(1)
    return 0


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
