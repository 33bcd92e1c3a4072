"""How true plans are: `python benchmarks/plan.py [--only SECTION ...] [--programs FOLDER] [--write]`.

Each section plans programs and sets what the plans say beside what others measured, or what this machine does. `--write` makes
docs/plan-accuracy.md of all sections, in about ten minutes. Sections are the files of `planning/` with a function `page`; those on memory
and traffic compare programs that `--programs` names (`planning/programs.py` says what the folder holds).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

SECTIONS = (
    "published",
    "maxtext",
    "serving",
    "gpu",
    "written_kernels",
    "here",
    "commands",
    "cost",
    "traffic",
    "memory",
)
OF_PROGRAMS = ("traffic", "memory")
PAGE = Path(__file__).parents[1] / "docs" / "plan-accuracy.md"
HEAD = """# How true plans are

Made by `python benchmarks/plan.py --programs FOLDER --write`. A plan is a model of hardware and compilers that this library does not
run on; what follows sets it beside what others published and what this machine measures, and says what the model does not know.
"""


def main() -> None:
    """Run the sections that the command line names, all by default."""
    parser = argparse.ArgumentParser(description="How true plans are.")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="these sections")
    parser.add_argument("--programs", type=Path, help="a folder of programs, for the sections on memory and traffic")
    parser.add_argument("--write", action="store_true", help="write docs/plan-accuracy.md, of all sections")
    given = parser.parse_args()
    if given.write and given.programs is None:
        parser.error("--write needs --programs: the page has sections on them")
    names = SECTIONS if given.write else given.only
    pages: list[str] = []
    for name in names:
        section = importlib.import_module(f"planning.{name}")
        begin = time.perf_counter()
        if name not in OF_PROGRAMS:
            pages.append(section.page())
        elif given.programs is not None:
            pages.append(section.page(given.programs.resolve()))
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    text = "\n".join([HEAD, *pages])
    if given.write:
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
