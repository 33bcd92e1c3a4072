"""How true plans are: `python benchmarks/plan.py [--only SECTION ...] [--write]`.

Each section plans programs and sets what the plans say beside what others measured, or what this machine does. `--write` makes
docs/plan-accuracy.md of all sections. Sections are files of their own, `plan_*.py`, with a function `page() -> str`; that on memory needs
`--programs` and `--facts`.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

SECTIONS = {"published": "plan_published", "here": "plan_here", "cost": "plan_cost"}
PAGE = Path(__file__).parents[1] / "docs" / "plan-accuracy.md"
HEAD = """# How true plans are

Made by `python benchmarks/plan.py --write`. A plan is a model of hardware and compilers that this library does not run on; what
follows sets it beside what others published and what this machine measures, and says what the model does not know.
"""


def main() -> None:
    """Run the sections that the command line names, all by default."""
    parser = argparse.ArgumentParser(description="How true plans are.")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="these sections")
    parser.add_argument("--programs", type=Path, help="adds the section on memory: see plan_memory.py")
    parser.add_argument("--facts", type=Path, help="what XLA's compiler said of these programs")
    parser.add_argument("--write", action="store_true", help="write docs/plan-accuracy.md")
    given = parser.parse_args()
    names = list(SECTIONS) if given.write else given.only
    pages = [importlib.import_module(SECTIONS[name]).page() for name in names]
    if given.programs is not None:
        pages.append(importlib.import_module("plan_memory").section(given.programs, given.facts))
    text = "\n".join([HEAD, *pages])
    if given.write:
        PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
