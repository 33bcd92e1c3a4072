"""`python -m tests.fuzz --seconds N --seed S [--laws ...]`: grow programs, hold laws against them, shrink what breaks one."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from pathlib import Path

os.environ["JAX_NUM_CPU_DEVICES"] = "16"  # as many as the largest mesh of `grow` has
os.environ["SHARDWISE_DIALECT"] = "latest"
sys.path.insert(0, str(Path(__file__).parent.parent.parent / "src"))

from shardwise import alias
from tests.fuzz import OPS_FILES as OPS_FILES  # registers what programs are grown from
from tests.fuzz.grow import Grower
from tests.fuzz.laws import LAWS, Finding, Runners, check
from tests.fuzz.program import Program
from tests.fuzz.shrink import shrunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--programs", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--seed", default="0", help="names the run; the same seed grows the same programs")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--laws", nargs="+", default=list(LAWS), choices=list(LAWS))
    parser.add_argument("--statements", type=int, default=None, help="of each program; else 20 to 60")
    parser.add_argument("--special", action="store_true", help="infinities, NaNs, ties and extremes in every program")
    parser.add_argument("--large", action="store_true", help="large dims in every program")
    parser.add_argument(
        "--mapping", action="store_true", help="shard_map in every program, over all axes or some, nested"
    )
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    parser.add_argument("--show", action="store_true", help="print programs, run nothing")
    options = parser.parse_args()
    jax = alias.install()
    runners = Runners()
    tried: collections.Counter[str] = collections.Counter()
    found: list[Finding] = []
    begin, number = time.monotonic(), options.first
    try:
        while time.monotonic() - begin < options.seconds and number < options.first + options.programs:
            seed = f"{options.seed}:{number}"
            number += 1
            grower = Grower(
                jax,
                seed,
                statements=options.statements,
                special=options.special,
                large=options.large,
                mapping=options.mapping,
            )
            program = grower.program()
            tried["programs"] += 1
            if tried["programs"] % 50 == 0:
                _sum_up(tried, begin, found)
            if options.show:
                print(f"# {seed}\n{program.text()}\n")
                continue
            for name in options.laws:
                tried[name] += 1
                finding = check(name, runners, program)
                if finding is not None:
                    found.append(finding)
                    _tell(runners, program, finding, seed, options.shrink)
    finally:
        runners.close()
    _sum_up(tried, begin, found)
    return bool(found)


def _sum_up(tried: collections.Counter[str], begin: float, found: list[Finding]) -> None:
    """Print how many programs each law was held against."""
    print(f"{dict(tried)} in {time.monotonic() - begin:.0f} s; {len(found)} findings", flush=True)


def _tell(runners: Runners, program: Program, finding: Finding, seed: str, shrink: bool) -> None:
    """Print a finding, with the smallest program that still shows it."""
    print(f"=== {seed} breaks {finding.law}: {finding.what}\n{finding.detail[:1500]}", flush=True)

    def shows(candidate: Program) -> bool:
        again = check(finding.law, runners, candidate)
        return again is not None and again.what == finding.what

    if finding.law == "refusals" and program.refused is not None:
        print(program.refused.text("mesh" if program.axis_type == "Explicit" else "plain"), "\n", flush=True)
        return
    if shrink:
        if not shows(program):
            print("(not seen again)")
            return
        program = shrunk(program, shows)
        again = check(finding.law, runners, program)
        print(f"--- shrunk\n{(again or finding).detail[:1500]}")
    plain = finding.law in ("jax", "eager") or (finding.law == "traced" and program.axis_type == "Auto")
    print(f"# noise: {program.noise}\n{program.text('plain' if plain else 'mesh')}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
