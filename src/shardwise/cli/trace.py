"""`shardwise trace`: a JAX program, unchanged, and a timeline of what its compiled programs do, of all processes in one file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from shardwise.cli.launch import add_processes, launch
from shardwise.cli.plan import check_file
from shardwise.cli.program import UserProgram, add_devices, add_program, own_words, prepare, run_to_end
from shardwise.runtime.processes import launched_rank

NAME = "trace"


def register(commands: Any) -> None:
    """Add the command `trace` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="a timeline of what a JAX program computes, for Perfetto",
        description="Run a JAX program and write when each of its compiled programs and their equations ran, with lines, types and "
        "bytes. Open the file at ui.perfetto.dev. Processes that mpiexec or --processes start write one file together.",
        epilog="OPTIONS may also stand right behind PROGRAM; what follows them, or a `--`, goes to the program.",
        usage="shardwise trace [OPTIONS] (PROGRAM | -m MODULE | -c CODE | -) [ARGUMENTS ...]",
        allow_abbrev=False,
    )
    add_program(parser)
    add_devices(parser)
    add_processes(parser)
    parser.add_argument("-o", "--output", metavar="FILE", default="trace.json", help="the file (trace.json)")
    parser.set_defaults(carry_out=_carry_out, split_words=own_words, parser=parser)


def _carry_out(options: argparse.Namespace) -> int:
    program = UserProgram.of(options)
    check_file("output", options.output)
    if options.processes is not None and options.processes > 1:
        given = {"--dialect": options.dialect, "--devices": options.devices, "--output": options.output}
        launch(NAME, program, options.processes, given)
    file = Path(options.output).resolve()  # the program may go to another folder
    if not launched_rank():
        file.unlink(missing_ok=True)
    prepare(program, options.dialect, options.devices)
    from shardwise.transforms.reports import Timeline  # start-up time: it brings the whole engine

    timeline = Timeline()
    timeline.start()
    try:
        status = run_to_end(program)
    finally:
        timeline.stop()
        timeline.append_to(file)
    if not launched_rank():
        print(f"shardwise: wrote {options.output}; open it at ui.perfetto.dev", file=sys.stderr)
    return status
