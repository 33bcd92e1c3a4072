"""`shardwise plan`: a JAX program, unchanged, run without data, and its needs on a machine that one does not have."""

from __future__ import annotations

import argparse
import atexit
import functools
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from shardwise.cli.endings import Output, Report, report_at_exit
from shardwise.cli.program import UsageError, UserProgram, add_program, own_words, prepare, run_to_end
from shardwise.engine.data_free import DataFree
from shardwise.engine.planned import free_memory, mark_children
from shardwise.planner import Machine, Plan

try:
    import resource
except ImportError:  # not on this platform
    resource = None

NAME = "plan"
_NO_MEMORY = (
    "shardwise plan: the program's own host memory ran out; arrays of jax take none. Give it less data to load, or shapes of its data in "
    "place of values."
)
_NO_FILE = (
    "shardwise plan: a planned run reads data as any run does. In place of data that is not on this machine, files of the same format "
    "and shapes do, whatever they hold."
)
_NOT_THERE = {"FileNotFoundError", "ConnectionError", "URLError"}  # of Python, of libraries that fetch data
_CHILDREN = " It ran other processes, of which nothing is seen: plan the program that they run."
_OF_VALUES = (AssertionError, ArithmeticError, LookupError, ValueError)  # where a zero stands for a value
_OF_SIZES = re.compile(
    r"\b(\w*devices?(_count)?|reshape|divi(ded?|ding|des|sible|sibility)|batch)\b", re.IGNORECASE
)  # in errors of programs that expect another machine
_MODULES = {"json": "as_json", "html": "html", "trace": "trace"}  # in `plan.report`, by option
# The options of planning that `shardwise explain --on` does not have.
UNSAID = {"read": "zeros", "advise": False, "search": False, "layouts": None, "chakra": None}


def register(commands: Any) -> None:
    """Add the command `plan` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="what a JAX program needs on a machine that one does not have",
        description="Run a JAX program without data, on the devices of a machine that one does not have, and say whether it fits there, "
        "what moves, and how long a step takes.",
        epilog="OPTIONS may also stand right behind PROGRAM, or begin with --on behind the program's arguments; behind a `--` all is the "
        "program's.",
        usage="shardwise plan [OPTIONS] (PROGRAM | -m MODULE | -c CODE | -) [ARGUMENTS ...] --on MACHINE",
        allow_abbrev=False,
    )
    add_program(parser)
    parser.add_argument(
        "--on",
        metavar="MACHINE",
        help="a machine such as v5p-256 or h100-8x16, or a file that describes one",
    )
    parser.add_argument(
        "--read",
        choices=("zeros", "raise", "compute"),
        default="zeros",
        help="what reading a value does: it is zero, with a note per line (the default), or an error, or it is computed on this machine",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="end the run after N calls of the largest program")
    parser.add_argument(
        "--advise",
        action="store_true",
        help="look for policies of jax.checkpoint and batches that are worth trying though the program fits",
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="plan the largest program in other layouts, too: mesh shapes, specs, policies, batches; print the best",
    )
    parser.add_argument("--layouts", type=int, metavar="N", help="how many layouts a search plans at most (200)")
    add_files(parser)
    parser.add_argument(
        "--chakra", metavar="DIR", help="write its execution traces, one per device, as Chakra has them"
    )
    parser.set_defaults(carry_out=carry_out, split_words=_split_words, parser=parser)


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options that name files for the plan of the largest program."""
    parser.add_argument(
        "--json", metavar="FILE", help="write the page of the largest program as JSON; - is standard output"
    )
    parser.add_argument("--html", metavar="FILE", help="write it as one page for a browser")
    parser.add_argument("--trace", metavar="FILE", help="write its predicted schedule for Perfetto")


def _split_words(words: list[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """The words of this command and those of the program; ours may also begin with ``--on`` behind the program's."""
    own, rest = own_words(words, parser)
    names_machine = any(w.partition("=")[0] == "--on" for w in own)
    end = words.index("--") if "--" in words else len(words)
    at = next(
        (i for i, w in enumerate(rest) if w.partition("=")[0] == "--on" and len(words) - len(rest) + i < end), None
    )
    if names_machine or at is None:
        return own, rest
    return own + rest[at:], rest[:at]


def carry_out(options: argparse.Namespace) -> int:
    """Run the program that the options name without data, and show the plans."""
    program = UserProgram.of(options)
    if options.on is None:
        raise UsageError(
            "--on MACHINE is missing: for which machine? v5p-256, v6e-8x8, h100-8x16 and cpu-2x16 are some, 'here' is this one"
        )
    check_writable(options)
    if options.layouts is not None and (not options.search or options.layouts < 1):
        raise UsageError(f"--layouts {options.layouts}: give --search and a number of layouts, at least one")
    prepare(program, options.dialect)
    children = _seconds_of_children()
    from shardwise.plan import on  # start-up time: it brings the whole engine
    from shardwise.plan.advise import plan_advice  # start-up time: as above

    try:
        plan_context = on(options.on, read=options.read, steps=options.steps)
        run = plan_context.__enter__()
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"--on {options.on}: {error.strerror}") from None
    _spare_memory()

    def report(status: int) -> int:
        text = ""
        try:
            plans = list(run.plans())
        except ValueError as error:
            raise UsageError(str(error)) from None
        largest = run.largest()
        if largest is None:
            if status:
                return status
            raise UsageError(
                f"{program.name} called no jitted function ({run.single_ops} ops ran outside of jit). Plans are made of "
                "compiled programs: decorate the training step with jax.jit, and call it."
                + (_CHILDREN if _seconds_of_children() > children else "")
            )
        plans[0] = plan_advice(plans[0], largest, run.machine, thorough=options.advise)
        if options.search:
            text = _search(largest, run.machine, options)
        show_plans(plans, options, text)
        return status

    def advice(error: BaseException) -> str:
        if isinstance(error, MemoryError):
            return _NO_MEMORY
        if any(kind.__name__ in _NOT_THERE for kind in type(error).__mro__):
            return _NO_FILE
        if isinstance(error, (ValueError, AssertionError)) and _OF_SIZES.search(_error_text(error)):
            return _devices_of(run.machine)
        return _read_as_zeros(run.last_read) if run.last_read and _may_be_of_values(error) else ""

    try:
        with mark_children(run.machine.name):
            return run_observed(program, options, report, advice)
    finally:
        plan_context.__exit__(None, None, None)


def _search(executable: DataFree, machine: Machine, options: argparse.Namespace) -> str:
    """The page of a search for better layouts."""
    if executable.user_call is None:
        return (
            f"search: nothing of {executable.name} can be varied, since its derivative is taken outside of jit. "
            "Decorate the whole training step with jax.jit."
        )
    from shardwise.plan.report import layouts  # start-up time: searches are rare
    from shardwise.plan.search import LAYOUTS, Choices, search_step  # start-up time: as above

    return layouts.text(search_step(executable, machine, Choices(layouts=options.layouts or LAYOUTS)))


def _spare_memory() -> None:
    """Let the program fail by a MemoryError where host memory ends, before the machine has to kill it."""
    gc.set_threshold(100_000, 20, 20)  # large programs are many objects that stay: each round over them is in vain
    atexit.register(gc.freeze)  # when Python ends it looks through all objects several times
    free = free_memory()
    if resource is None or free is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/statm") as file:
        own = int(file.read().split()[5]) * resource.getpagesize()
    limit = own + free
    if soft in (resource.RLIM_INFINITY, -1) or limit < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        _start_children_with((soft, hard))


def _start_children_with(limits: tuple[int, int]) -> None:
    """Let processes that `subprocess` starts have these limits: some reserve more memory than they use."""
    assert resource is not None
    import subprocess  # start-up time: of the other commands

    kind, set_limits, get_limits = resource.RLIMIT_DATA, resource.setrlimit, resource.getrlimit
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def start_with_limits(self: Any, *args: Any, **kwargs: Any) -> None:
        own = get_limits(kind)
        set_limits(kind, limits)
        try:
            start(self, *args, **kwargs)
        finally:
            set_limits(kind, own)

    subprocess.Popen.__init__ = start_with_limits


def _seconds_of_children() -> float:
    """The processor time of the processes that this one has started and waited for."""
    times = os.times()
    return times.children_user + times.children_system


def _error_text(error: BaseException) -> str:
    """The text of an error; of an assertion its condition, too."""
    frames = traceback.extract_tb(error.__traceback__)
    assertion = frames[-1].line if frames and isinstance(error, AssertionError) else ""
    return f"{error} {assertion}"


def _may_be_of_values(error: BaseException) -> bool:
    """Whether zeros in place of values may have led to the error. Errors of this library depend on types alone."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = bool(frames) and Path(frames[-1].filename).is_relative_to(Path(__file__).parents[1])
    return isinstance(error, _OF_VALUES) and not ours


def _read_as_zeros(line: str) -> str:
    """Advice where the program does not bear zeros in place of values, the last of which it read in `line`."""
    return (
        f"shardwise plan: the program read values that a planned run does not compute, the last at {line}: they are zeros, so that checks "
        "of them fail. --read compute computes them on this machine; where PYTHONOPTIMIZE=1 is set, Python leaves assertions out."
    )


def _devices_of(machine: Machine) -> str:
    """Advice where a mesh or a batch does not fit the machine."""
    return (
        f"shardwise plan: jax.devices() are the {machine.devices} devices of {machine.name}. A mesh takes these or fewer, and a dim has to "
        "divide by the size of the axes that split it; where the program expects others, name another machine behind --on."
    )


def run_observed(
    program: UserProgram,
    options: argparse.Namespace,
    report: Report,
    advice: Callable[[BaseException], str] | None = None,
) -> int:
    """Run the program to its end, or for as many steps as are asked for, or until it is interrupted, and report on it; the exit status.

    `report` gets the program's status and gives that of the command. `advice` is what to print behind an error.
    """
    from shardwise.plan import StepsDone  # start-up time: it brings the whole engine

    output = Output(apart="-" in _files(options).values())

    def end(status: int) -> int:
        with output.restore():
            return report(status)

    def end_at_once(status: int) -> int:
        try:
            status = end(status)
        except UsageError as error:
            status = error.show(options)
        sys.stdout.flush()
        sys.stderr.flush()
        return status

    with report_at_exit(end_at_once):
        try:
            status = run_to_end(program, advice, ends_interrupted=False)
        except StepsDone:
            status = 0
        except KeyboardInterrupt:
            print(f"shardwise {options.command}: interrupted; this is what was seen so far", file=sys.stderr)
            status = 0
    return end(status)


def _files(options: argparse.Namespace) -> dict[str, str]:
    """The files that the options name for the plan of the largest program."""
    return {name: file for name in ("json", "html", "trace") if (file := getattr(options, name)) is not None}


def check_writable(options: argparse.Namespace) -> None:
    """Refuse files that could not be written after the run, before it. The paths become whole: the program may go to another folder."""
    files = _files(options)
    for name, file in files.items():
        if file != "-":
            check_file(name, file)
    if list(files.values()).count("-") > 1:
        raise UsageError("standard output takes one of --json, --html and --trace; give a file for the others")
    if options.chakra is not None and Path(options.chakra).is_file():
        raise UsageError(f"--chakra {options.chakra}: that is a file; give a folder")
    for name, file in (*files.items(), ("chakra", options.chakra)):
        if file is not None and file != "-":
            setattr(options, name, str(Path(file).resolve()))


def check_file(option: str, file: str) -> None:
    """Refuse a file that cannot be written, named by the option --`option`."""
    folder = Path(file).resolve().parent
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--{option} {file}: there is no folder {folder} that can be written to")
    if Path(file).is_dir():
        raise UsageError(f"--{option} {file}: that is a folder; give a file in it")


def show_plans(plans: Sequence[Plan], options: argparse.Namespace, found: str = "") -> None:
    """Print the first plan, the verdicts of the others and the results of a search, and write the files that the options name.

    If standard output is one of these, the page goes to standard error.
    """
    from shardwise.plan.report import terminal  # start-up time: only what shows the plan

    largest, files = plans[0], _files(options)
    sys.stdout.flush()
    page = sys.stderr if "-" in files.values() else sys.stdout
    terminal.show(largest, page)
    if len(plans) > 1:
        print("\nOther programs:", file=page)
        for line in terminal.short_lines(plans)[1:]:
            print(f"  {line}", file=page)
    if found:
        print(f"\n{found}", file=page)
    for name, file in files.items():
        text = getattr(import_module(f"shardwise.plan.report.{_MODULES[name]}"), f"to_{name}")(largest)
        if file == "-":
            print(text)
        else:
            Path(file).write_text(text)
    if options.chakra:
        from shardwise.plan.report.chakra import write_chakra  # start-up time

        write_chakra(largest, options.chakra)
