"""The program that a command line names: a file, a notebook, a module, code, or standard input.

In: the words of the command line. Out: the program run as ``__main__``, seeing the interpreter's state that `python` would give it;
there and in the processes that it starts `import jax` means shardwise.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import linecache
import os
import runpy
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Literal

from shardwise import alias
from shardwise.base import config
from shardwise.base.dialect import ALIASES, DIALECTS
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.cli import eras, notebook
from shardwise.runtime.processes import launched_rank

_HERE = os.path.dirname(os.path.abspath(__file__))
_INTERRUPT_STATUS = 130  # the exit status of shells for a program ended by Ctrl-C
_INHERITED_VARIABLES = ("SHARDWISE_RUN_PREFIX", "SHARDWISE_DIALECT")
_CHILDREN = os.path.join(_HERE, "children")  # found by the Python that a child runs


class UsageError(Exception):
    """An invalid command line; the message is for the user."""

    def show(self, options: argparse.Namespace) -> int:
        """Print it, and how the command is used; the exit status."""
        options.parser.print_usage(sys.stderr)
        print(f"shardwise {options.command}: {self}", file=sys.stderr)
        return 2


@dataclass(frozen=True)
class UserProgram:
    """A program and the arguments that it sees. `text` is a path, the name of a module, or the code itself; of stdin it is ``-``."""

    kind: Literal["file", "module", "code", "stdin"]
    text: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: argparse.Namespace) -> UserProgram:
        """The one program that parsed options name (see `add_program`).

        Raises:
            UsageError: they name none, several, or one that is not there.
        """
        names = [name for name in ("program", "module", "code") if getattr(options, name) is not None]
        if len(names) != 1:
            raise UsageError("give a PROGRAM, -m MODULE or -c CODE" + (", and one of them only" if names else ""))
        arguments = tuple(options.arguments)
        if options.module is not None:
            return cls("module", options.module, arguments)
        if options.code is not None:
            return cls("code", options.code, arguments)
        if options.program == "-":
            return cls("stdin", "-", arguments)
        path = Path(options.program)
        if path.is_dir():
            raise UsageError(f"{path} is a folder; give a .py file or an .ipynb notebook")
        if not path.exists():
            raise UsageError(f"there is no file {path}")
        return cls("file", str(path), arguments)

    @functools.cached_property
    def standard_input(self) -> str:
        """The program's text, if it comes from there."""
        return sys.stdin.read()

    def sources(self) -> tuple[list[tuple[str, str]], list[Path]]:
        """The texts of the program and of those that its arguments name, each with its name, and the folders of their own modules."""
        texts, folders = self._own_sources()
        for path in map(Path, self.arguments):  # a launcher's program
            if path.suffix == ".py" and path.is_file():
                texts.append((str(path), path.read_text(encoding="utf-8", errors="replace")))
                folders += [path.resolve().parent, Path.cwd()]
        return texts, folders

    def _own_sources(self) -> tuple[list[tuple[str, str]], list[Path]]:
        path = Path(self.text)
        if self.kind == "module":
            sources = eras.beside(self.text, [Path.cwd()])
            main = [sources.with_name("__main__.py"), sources] if sources is not None else []
            return [(str(f), f.read_text(encoding="utf-8", errors="replace")) for f in main if f.is_file()], [
                Path.cwd()
            ]
        if self.kind in ("code", "stdin"):
            return [(self.name, self.text if self.kind == "code" else self.standard_input)], [Path.cwd()]
        folders = [path.resolve().parent]
        if path.suffix == ".ipynb":
            cells = notebook.texts(path)
            return [(str(path), "\n".join(text for _, text in cells))] if cells else [], folders
        return [(str(path), path.read_text(encoding="utf-8", errors="replace"))], folders

    @property
    def name(self) -> str:
        """The program as messages name it."""
        return {"code": "-c", "stdin": "the program on standard input"}.get(self.kind, self.text)

    def words(self) -> list[str]:
        """The words of a command line that name the program and its arguments."""
        flag = {"module": ["-m"], "code": ["-c"]}.get(self.kind, [])
        return [*flag, self.text, "--", *self.arguments]

    def as_module(self, error: BaseException) -> str:
        """How to run a file that belongs to a package, if `error` is that it does not know its package; else nothing."""
        if self.kind != "file" or not isinstance(error, ImportError) or "no known parent package" not in str(error):
            return ""
        path = Path(self.text).resolve()
        top = path.parent
        while (top.parent / "__init__.py").exists():
            top = top.parent
        name = ".".join([*path.parent.relative_to(top.parent).parts, path.stem])
        return f"{self.text} is a module of a package: give -m {name} in its place, from the folder {top.parent}"

    def execute(self) -> None:
        """Run the program as ``__main__``. Its exceptions pass through.

        Raises:
            UsageError: it is a notebook or a module that cannot be run.
        """
        gc.freeze()  # what is here stays: the collector need not look through it, as it does several times when Python ends
        if self.kind == "module":
            _run_module(self.text, self.arguments)
            return
        path = Path(self.text)
        in_file = self.kind == "file"
        sys.argv = [{"code": "-c"}.get(self.kind, self.text), *self.arguments]
        sys.path[0:1] = [str(path.resolve().parent) if in_file else ""]
        module = ModuleType("__main__")
        module.__dict__.update(__builtins__=__builtins__)
        sys.modules["__main__"] = module
        if not in_file:
            text, name = (self.standard_input, "<stdin>") if self.kind == "stdin" else (self.text, "<string>")
            _run_text(text, name, module)
            return
        module.__file__ = os.path.abspath(path)
        try:
            if path.suffix == ".ipynb":
                notebook.run(path, module.__dict__)
            else:
                whole = os.path.abspath(path)  # as Python has it
                exec(compile(path.read_bytes(), whole, "exec", dont_inherit=True), module.__dict__)
        except notebook.NotebookError as error:
            raise UsageError(str(error)) from None


def _run_text(text: str, name: str, module: ModuleType) -> None:
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # tracebacks show its lines
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)


def _run_module(name: str, arguments: Sequence[str]) -> None:
    sys.path[0:1] = [str(Path.cwd())]
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not name.startswith(f"{error.name}."):
            raise  # the package that holds it fails to import another
        spec = None
    except ValueError:  # of a module without a spec, and of a relative name
        spec = None
    if spec is None:
        raise UsageError(f"there is no module {name}")
    if spec.submodule_search_locations is not None and importlib.util.find_spec(f"{name}.__main__") is None:
        raise UsageError(f"{name} is a package without a module __main__; name the module of it that is to run")
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add PROGRAM, -m and -c, and the dialect to a command's parser."""
    parser.add_argument("program", metavar="PROGRAM", nargs="?", help="a .py file, an .ipynb notebook, or - for stdin")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="a module in place of PROGRAM, as of `python -m`")
    parser.add_argument(
        "-c", dest="code", metavar="CODE", help="a program's text in place of PROGRAM, as of `python -c`"
    )
    parser.add_argument(
        "--dialect",
        choices=(*DIALECTS, *ALIASES),
        metavar="{" + ",".join(DIALECTS) + "}",
        help="behave and print as this release of JAX; by default the names that the program uses decide",
    )


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Add the option --devices."""
    count = functools.partial(positive, "devices")
    parser.add_argument("--devices", type=count, metavar="N", help="number of virtual CPU devices (of each process)")


def clean_environment(devices: int | None) -> dict[str, str]:
    """The environment of a process that is to import the real JAX, with so many CPU devices where a number is given.

    It is this one's before `prepare`: without the paths by which children inherit the alias.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _INHERITED_VARIABLES}
    if (path := os.environ.get("PYTHONPATH")) is not None:
        environment["PYTHONPATH"] = os.pathsep.join(p for p in path.split(os.pathsep) if p != _CHILDREN)
    environment.setdefault("JAX_PLATFORMS", "cpu")
    if devices is not None:
        environment["JAX_NUM_CPU_DEVICES"] = str(devices)
    return environment


def positive(what: str, text: str) -> int:
    """The value of an option that counts `what`."""
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of {what}; give an integer of at least 1")
    return count


def prepare(program: UserProgram, dialect: str | None, devices: int | None = None) -> None:
    """Let `jax` mean shardwise, in this dialect and with so many devices, as far as they are given.

    Without a dialect, neither here nor in the environment, that one is taken whose names the program and its libraries use.

    Processes that the program starts with this Python inherit it with the environment: a child that is given another PYTHONPATH, or
    ignores it (`python -I`), does not.
    """
    environment = os.environ
    if dialect is None and "SHARDWISE_DIALECT" not in environment:
        dialect = _requested_dialect(program)
    if dialect is not None:
        config.update("shardwise_dialect", dialect)
        environment["SHARDWISE_DIALECT"] = dialect
    if devices is not None:
        config.update("jax_num_cpu_devices", devices)
        environment["JAX_NUM_CPU_DEVICES"] = str(devices)
    alias.install()
    before = environment.get("PYTHONPATH")
    paths = [entry for entry in before.split(os.pathsep) if entry != _CHILDREN] if before else []
    environment["PYTHONPATH"] = os.pathsep.join([_CHILDREN, *paths])
    environment["SHARDWISE_RUN_PREFIX"] = sys.prefix


def _requested_dialect(program: UserProgram) -> str | None:
    """The dialect whose names the program uses, told if it is not the default one."""
    sign = eras.chosen_era(*program.sources())
    if sign is None or sign.era == config.dialect.name:
        return None
    if not launched_rank():
        print(
            f"shardwise: behaves as JAX {sign.era}, since {sign}; --dialect {config.dialect.name} or {sign.era} chooses.",
            file=sys.stderr,
        )
    return sign.era


def run_to_end(
    program: UserProgram, advice: Callable[[BaseException], str] | None = None, ends_interrupted: bool = True
) -> int:
    """Run the program to its end or to its failure, which is shown; the exit status.

    `advice` is what to print behind an error. `ends_interrupted`: Ctrl-C is a failure, too; else it is raised.
    """
    try:
        try:
            program.execute()
        finally:
            _wait_for_threads()
    except UsageError:
        raise
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and not ends_interrupted:
            raise
        _report(error)
        for text in (program.as_module(error), advice(error) if advice else ""):
            if text:
                print(text, file=sys.stderr)
        return _INTERRUPT_STATUS if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _wait_for_threads() -> None:
    """Wait for what Python waits for before it ends: threads that are no daemons. Those of an executor end with the process."""
    executors = sys.modules.get("concurrent.futures.thread")
    idle = () if executors is None else executors._threads_queues
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon and thread not in idle:
            thread.join()


def own_words(words: Sequence[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Split the words behind a command into its own, which its parser knows, and those of the program.

    Argparse cannot: our options may stand before PROGRAM and right behind it, while a program may have options of the
    same names further on.
    """
    ours = {
        name: action.nargs != 0 for action in parser._actions for name in action.option_strings
    }  # whether a value follows
    behind = ours.keys() - {"-h", "--help", "-m", "-c"}  # of the program's own words these are none
    own: list[str] = []
    rest, program_seen = list(words), False
    while rest:
        word = rest[0]
        name = word.partition("=")[0]
        option = word.startswith("-") and word not in ("-", "--")
        if option and not program_seen and word[:2] in ("-m", "-c"):
            program_seen, width = True, 2 if len(word) == 2 else 1
        elif option and (not program_seen or name in behind):
            width = 2 if ours.get(word) else 1
        elif program_seen:
            break
        else:
            program_seen, width = True, 1
        own += rest[:width]
        rest = rest[width:]
    return own, rest[1:] if rest[:1] == ["--"] else rest


def _report(error: BaseException) -> None:
    """Show the program's failure as Python would, without the frames of this command."""
    error.__traceback__ = _from_program(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)


def _from_program(frames: TracebackType | None) -> TracebackType | None:
    def ours(file: str) -> bool:
        return os.path.dirname(os.path.abspath(file)) == _HERE or file == "<frozen runpy>"

    while frames is not None and ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames
