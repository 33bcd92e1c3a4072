"""`shardwise explain`: a JAX program, unchanged, run here or planned for a machine, and what its compiled programs need.

The page is that of `shardwise plan`: memory at the peak by line, traffic by axis and line, time by op and line; `--measure` puts the time
that each kernel took beside the prediction.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shardwise import alias
from shardwise.base import config
from shardwise.cli import plan
from shardwise.cli.program import Program, UsageError, add_program, own_words, report, set_dialect
from shardwise.cli.run import device_count

NAME = "explain"
_OPTIONS = ("--on", "--steps", "--devices", "--json", "--html", "--trace", "--dialect")
_FLAGS = ("--measure",)


def register(commands: Any) -> None:
    """Add the command `explain` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="what a JAX program needs and does: memory, traffic and time by line",
        description="Run a JAX program and say of its compiled programs what is in memory at the peak, what moves, and what "
        "takes how long, by line.",
        epilog="OPTIONS may also stand right behind PROGRAM; what follows them, or a `--`, goes to the program.",
        usage="shardwise explain [OPTIONS] (PROGRAM | -m MODULE | -c CODE | -) [ARGUMENTS ...]",
        allow_abbrev=False,
    )
    add_program(parser)
    parser.add_argument("--devices", type=device_count, metavar="N", help="number of virtual CPU devices")
    parser.add_argument(
        "--measure", action="store_true", help="time each kernel of a call beside what is predicted of it"
    )
    parser.add_argument("--on", metavar="MACHINE", help="plan for this machine instead, without running anything")
    parser.add_argument("--steps", type=int, metavar="N", help="with --on: end after N calls of the largest program")
    parser.add_argument("--json", metavar="FILE", help="write the page of the largest program as JSON")
    parser.add_argument("--html", metavar="FILE", help="write it as one page for a browser")
    parser.add_argument("--trace", metavar="FILE", help="write its predicted schedule for Perfetto")
    parser.set_defaults(carry_out=_carry_out, parser=parser, **plan.UNSAID)


def split_words(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of this command and those of the program."""
    return own_words(words, _OPTIONS, _FLAGS)


def _carry_out(options: argparse.Namespace) -> int:
    if options.on is not None:
        for name in ("measure", "devices"):
            if getattr(options, name):
                raise UsageError(f"--{name} is for runs on this machine; leave it out, or leave out --on")
        return plan.carry_out(options)
    if options.steps is not None:
        raise UsageError("--steps ends planned runs; name a machine by --on, or leave it out")
    program = Program.of(options)
    plan.check_writable(options)
    set_dialect(options)
    if options.devices is not None:
        config.update("jax_num_cpu_devices", options.devices)
    alias.install()
    from shardwise.plan import watched_run  # start-up time: it brings the whole engine

    with watched_run(options.measure) as run:
        status = _execute(program)
    plans = run.plans()
    if plans:
        plan.show_plans(plans, options)
    elif not status:
        raise UsageError(
            f"{program.name} calls no jitted function. Compiled programs are explained: decorate the function with jax.jit, and call it."
        )
    return status


def _execute(program: Program) -> int:
    """Run the program to its end, or to its failure; the exit status. What it has compiled by then is explained."""
    try:
        program.execute()
    except UsageError:
        raise
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception as error:
        report(error)
        return 1
    return 0
