"""`shardwise completion`: the script by which a shell completes this command line."""

from __future__ import annotations

import argparse
from typing import Any, cast

NAME = "completion"
_FILES = ("PROGRAM", "FILE", "DIR")


def register(commands: Any) -> None:
    """Add the command `completion` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="print the script that lets a shell complete shardwise's words",
        description='Print a completion script. In bash: eval "$(shardwise completion bash)".',
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell that reads the script")
    parser.set_defaults(carry_out=_carry_out, parser=parser)


def _carry_out(options: argparse.Namespace) -> int:
    import shtab  # start-up time

    for action in _arguments(options.whole):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it from there
    print(shtab.complete(options.whole, shell=options.shell))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    actions: list[argparse.Action] = []
    for action in parser._actions:
        choices: object = action.choices
        if isinstance(choices, dict):
            for command in cast("dict[str, argparse.ArgumentParser]", choices).values():
                actions += _arguments(command)
        else:
            actions.append(action)
    return actions
