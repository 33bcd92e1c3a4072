"""`shardwise explain`: a JAX program, unchanged, run here or planned for a machine, and the needs of its compiled programs.

The page is that of `shardwise plan`: memory at the peak by line, traffic by axis and line, time by op and line; `--measure` puts the time
that each kernel took beside the prediction.
"""

from __future__ import annotations

import argparse
from typing import Any

from shardwise.cli import plan
from shardwise.cli.program import UsageError, UserProgram, add_devices, add_program, own_words, prepare

NAME = "explain"


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
    add_devices(parser)
    parser.add_argument(
        "--measure", action="store_true", help="time each kernel of a call beside what is predicted of it"
    )
    parser.add_argument("--on", metavar="MACHINE", help="plan for this machine instead, without running anything")
    parser.add_argument("--steps", type=int, metavar="N", help="with --on: end after N calls of the largest program")
    plan.add_files(parser)
    parser.set_defaults(carry_out=_carry_out, split_words=own_words, parser=parser, **plan.UNSAID)


def _carry_out(options: argparse.Namespace) -> int:
    if options.on is not None:
        for name in ("measure", "devices"):
            if getattr(options, name):
                raise UsageError(f"--{name} is for runs on this machine; leave it out, or leave out --on")
        return plan.carry_out(options)
    if options.steps is not None:
        raise UsageError("--steps ends planned runs; name a machine by --on, or leave it out")
    program = UserProgram.of(options)
    plan.check_writable(options)
    prepare(program, options.dialect, options.devices)
    from shardwise.plan import watched_run  # start-up time: it brings the whole engine

    with watched_run(options.measure) as run:

        def report(status: int) -> int:
            plans = run.plans()
            if plans:
                plan.show_plans(plans, options)
            elif not status:
                raise UsageError(
                    f"{program.name} calls no jitted function. Compiled programs are explained: decorate the function with jax.jit, "
                    "and call it."
                )
            return status

        return plan.run_observed(program, options, report)
