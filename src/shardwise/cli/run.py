"""`shardwise run`: a JAX program, unchanged, with `jax` standing for shardwise, as one process or as several."""

from __future__ import annotations

import argparse
from typing import Any

from shardwise.cli.launch import add_processes, launch
from shardwise.cli.program import UserProgram, add_devices, add_program, own_words, prepare, run_to_end

NAME = "run"


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
    add_devices(parser)
    add_processes(parser)
    parser.set_defaults(carry_out=_carry_out, split_words=own_words, parser=parser)


def _carry_out(options: argparse.Namespace) -> int:
    program = UserProgram.of(options)
    if options.processes is not None and options.processes > 1:
        launch(NAME, program, options.processes, {"--dialect": options.dialect, "--devices": options.devices})
    prepare(program, options.dialect, options.devices)
    return run_to_end(program)
