"""The command `shardwise`: `run` a JAX program or notebook, `explain` what it does, `bench` and `trace` its calls, `plan` it elsewhere.

In: the words of the command line. Out: an exit status; everything else is printed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

from shardwise import __version__
from shardwise.cli import bench, completion, explain, help, info, plan, run, trace
from shardwise.cli.info import print_environment_info as print_environment_info
from shardwise.cli.program import UsageError as UsageError

_COMMANDS: tuple[ModuleType, ...] = (run, explain, bench, trace, plan, info, help, completion)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the word that was probably meant."""

    def error(self, message: str) -> NoReturn:
        given, colon, rest = message.partition(" (choose from ")
        if colon:
            word = given.rpartition("invalid choice: ")[2].strip("'")
            names = [name.strip(" ')") for name in rest.split(",")]
        else:
            word = message.removeprefix("unrecognized arguments: ").split(" ")[0].partition("=")[0]
            names = [name for action in self._actions for name in action.option_strings]
        near = difflib.get_close_matches(word, names, 1) if word else []
        super().error(message + (f"; did you mean {near[0]}?" if near else ""))


def _make_parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of the whole command line, and those of the commands by name."""
    parser = _Parser(prog="shardwise", description="JAX's array and sharding API on NumPy kernels.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"shardwise {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.register(commands)
    return parser, commands.choices


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line (`sys.argv` if none is given) and return the exit status."""
    words, rest = list(sys.argv[1:] if arguments is None else arguments), []
    parser, commands = _make_parser()
    command = commands.get(words[0]) if words else None
    if command is not None and (split_words := command.get_default("split_words")):
        words[1:], rest = split_words(words[1:], command)
    options, unknown = parser.parse_known_args(words, argparse.Namespace(arguments=rest, whole=parser))
    if unknown:
        options.parser.error("unrecognized arguments: " + " ".join(unknown))
    try:
        status = options.carry_out(options)
        with suppress(ValueError, AttributeError):  # the program has closed it, or put something in its place
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # who reads our output, such as `head`, has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest of the output
        return 128 + signal.SIGPIPE
    except UsageError as error:
        return error.show(options)
