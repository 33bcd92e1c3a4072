"""The programs of other tests, as texts: each leaves what it computed in `result`, and may print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.differential import test_errors, test_layouts, test_programs, test_shard_map
from tests.differential.programs import AUTOMATIC_ONLY, FAMILIES, MESHES, placed

TESTS = Path(__file__).parent.parent
EXAMPLES = 6  # random programs of each family


@dataclass(frozen=True)
class Job:
    """A program to run everywhere."""

    name: str
    source: str
    dialect: str = "latest"
    ulps: float = 64
    viewed: bool = True  # arrays are read as on one process, and must be the same; else it is enough that nothing fails


def drawn(strategy: Any, examples: int = EXAMPLES) -> list[Any]:
    """The first examples of a hypothesis strategy, always the same."""
    found: list[Any] = []

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]  # its metaclass has no types
    )
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


# Programs that several processes cannot run as they are, in JAX either, and why.
HOST_VALUES = "jit takes host values of several processes replicated only"
OWN_DEVICES = "asks for the devices, or arrays, of a process"
CAPTURED = "captures an array of several processes, which jit refuses"
SINGLE_PROCESS = {
    "everyday: array attributes": OWN_DEVICES,
    "everyday: make_array_from": "counts callbacks, of which each process runs its own",
    "everyday: drawings": OWN_DEVICES,
    "everyday: in and out shardings": HOST_VALUES,
    "everyday: shardings by spec": HOST_VALUES,
    "everyday: pmap": "maps over more rows than a process has devices",
    "everyday: device_put": "moves an array of all processes to one device",
    "everyday: default device": "uncommitted arrays on another process's device",
    "everyday: old positions of live arrays": OWN_DEVICES,
    "everyday: where broadcasts layouts where it broadcasts shapes": CAPTURED,
    "acceptance: closures_and_donation": CAPTURED,
    "documents: programs era_forms": "makes a PmapSharding of 8 rows",
    "documents: programs s002_host_local": "host-local values of several processes are parts; see host_local.py",
    "documents: latest s002_host_local": "host-local values of several processes are parts; see host_local.py",
    "documents: programs s002_one_type": OWN_DEVICES,
    "documents: latest s002_one_type": OWN_DEVICES,
}


def jobs() -> list[Job]:
    """Every program, in the order in which they run."""
    found = [*_everyday(), *_laid_out(), *_random(), *_collectives(), *_refused(), *_of_documents()]
    return [job for job in found if job.name not in SINGLE_PROCESS]


def _everyday() -> Iterator[Job]:
    for name, program in test_programs.PROGRAMS.items():
        yield Job(f"everyday: {name}", test_programs.SETUP + program)
    for path in sorted((TESTS / "acceptance" / "programs").glob("*.py")):
        yield Job(f"acceptance: {path.stem}", path.read_text())


def _laid_out() -> Iterator[Job]:
    for i, row in enumerate(test_layouts.ROWS):
        yield Job(f"layouts: {i} {row[0]}", test_layouts.source(row[0], row[1:]))


def _random() -> Iterator[Job]:
    for family in FAMILIES:
        for i, case in enumerate(drawn(placed(FAMILIES[family]))):
            yield Job(f"{family}: {i}", case.source(), ulps=max(64, case.case.ulps))
    splitting = [mesh for mesh in MESHES if 1 not in mesh]
    for family in sorted(FAMILIES.keys() - AUTOMATIC_ONLY):
        for i, case in enumerate(drawn(placed(FAMILIES[family], splitting), EXAMPLES // 2)):
            yield Job(f"{family}, explicit: {i}", case.source("Explicit"), ulps=max(64, case.case.ulps))


def _collectives() -> Iterator[Job]:
    for i, (setting, call) in enumerate(drawn(test_shard_map.bodies(), 60)):
        body = test_shard_map.BODY.format(call=call, check=i % 2 == 0)
        yield Job(f"shard_map: {i} {call}", setting + body + f"result = {'jax.jit(f)' if i % 3 else 'f'}(a)")


def _refused() -> Iterator[Job]:
    for name, program in test_errors.PROGRAMS.items():
        yield Job(f"refused: {name}", test_errors.MESH + program)


def _of_documents() -> Iterator[Job]:
    for folder, dialect in (("programs", "seed"), ("latest", "latest")):
        for path in sorted((TESTS / "seeds" / folder).glob("*.py")):
            source = path.read_text().replace("jax.config.update('jax_num_cpu_devices', 8)", "")  # it is settled by now
            yield Job(f"documents: {folder} {path.stem}", source, dialect, viewed="single_device" not in path.stem)
