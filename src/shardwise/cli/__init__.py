"""The command `shardwise`: `run` a JAX program or notebook, `plan` one for a machine that one does not have, `info` about this one.

In: the words of the command line. Out: an exit status; everything else is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from shardwise.cli import info, plan, run
from shardwise.cli.info import print_environment_info as print_environment_info
from shardwise.cli.run import UsageError as UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line (`sys.argv` if none is given) and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="shardwise", description="JAX's array and sharding API on NumPy kernels.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run.register(commands)
    plan.register(commands)
    info.register(commands)
    words, rest = list(sys.argv[1:] if arguments is None else arguments), []
    for command in (run, plan):
        if words[:1] == [command.NAME]:
            words[1:], rest = command.own_words(words[1:])
    options = parser.parse_args(words, argparse.Namespace(arguments=rest))
    try:
        return options.carry_out(options)
    except UsageError as error:
        print(f"shardwise {options.command}: {error}", file=sys.stderr)
        return 2
