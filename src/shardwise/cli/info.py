"""`shardwise info`: the capabilities of this machine and this installation."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import shardwise
from shardwise.base import config
from shardwise.base.options import NO_EFFECT, OPTIONS
from shardwise.runtime.machine import kernel_store, llvm
from shardwise.runtime.products import amx, blas, product_threads

NAME = "info"
_PACKAGES = (
    "numpy",
    "scipy",
    "ml_dtypes",
    "optree",
    "opt_einsum",
    "llvmlite",
    "rich",
    "mpi4py",
    "mpich",
)
_PROBE_SECONDS = 20


def register(commands: Any) -> None:
    """Add the command `info` to the parser."""
    parser = commands.add_parser(
        NAME,
        help="print versions, CPU, BLAS, devices, MPI, settings",
        description="Print what shardwise finds here.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON: a list of lines for each section")
    parser.set_defaults(carry_out=_carry_out, parser=parser)


def print_environment_info(return_string: bool = False) -> str | None:
    """Print what `shardwise info` prints, or return it as a string if `return_string`.

    >>> "shardwise" in jax.print_environment_info(return_string=True)
    True
    """
    text = "\n".join(f"{title:<10}" + ("\n" + " " * 10).join(lines or ["none"]) for title, lines in _report())
    if return_string:
        return text
    print(text)
    return None


def _carry_out(options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(dict(_report()), indent=2))
    else:
        print_environment_info()
    return 0


def _report() -> Iterable[tuple[str, list[str]]]:
    for title, describe in _SECTIONS.items():
        try:
            lines = list(describe())
        except Exception as error:  # a broken driver or library is a finding, not a reason to stop
            lines = [f"not known: {type(error).__name__}: {error}"]
        yield title, lines


def _versions() -> Iterable[str]:
    own = _version("shardwise") or "(not installed)"
    yield f"shardwise {own}, Python {platform.python_version()}, {sys.executable}"
    versions = [f"{name} {version}" for name in _PACKAGES if (version := _version(name))]
    yield ", ".join(versions)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _dialect() -> Iterable[str]:
    yield f"{config.dialect.name}: behaves and prints as JAX {config.dialect.jax_version}"


def _cpu() -> Iterable[str]:
    model, flags = platform.machine(), ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in fields.items()}
        model, flags = fields.get("model name", model), fields.get("flags", "")
    widths = [name for name in ("avx512f", "avx2", "fma") if name in flags.split()]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield f"{model}, {usable} of {os.cpu_count()} cores usable" + (f", {' '.join(widths)}" if widths else "")
    if llvm.available():
        place = kernel_store.folder()
        yield f"fused loops: compiled, kept in {place}" if place else "fused loops: compiled, not kept"
    else:
        yield "fused loops: by NumPy, in tiles" + ("" if config.shardwise_llvm else " (shardwise_llvm is off)")


def _blas() -> Iterable[str]:
    import numpy

    build_info = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index]
    numpy.dot(numpy.ones((2, 2)), numpy.ones((2, 2)))
    yield f"NumPy's: {build_info.get('name')} {build_info.get('version')}"
    for library in _loaded_libraries("openblas"):
        core, threads = _ask(library, "get_corename", ctypes.c_char_p), _ask(library, "get_num_threads", ctypes.c_int)
        yield f"{library.name}: kernels for {core.decode() if core else 'an unknown core'}, {threads or '?'} threads"
    mine = blas.library()
    if mine is None:
        yield "large products: by NumPy" + (" (shardwise_blas is 'numpy')" if config.shardwise_blas == "numpy" else "")
    else:
        yield f"large products: by a copy of that library, kernels for {mine.core}, {product_threads()} threads"
    if amx.has_amx():
        yield "bfloat16 and 8-bit integers: in the processor's tile registers (AMX)"


def _loaded_libraries(word: str) -> list[Path]:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    names = {
        line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if word in line and "/memfd:" not in line
    }
    return sorted(Path(name) for name in names)


def _ask(library: Path, question: str, kind: Any) -> Any:
    """Call an OpenBLAS query function, whose name depends on who built the library."""
    library_handle = ctypes.CDLL(str(library))
    for name in (f"{prefix}openblas_{question}{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")):
        if hasattr(library_handle, name):
            function = getattr(library_handle, name)
            function.restype = kind
            return function()
    return None


def _devices() -> Iterable[str]:
    count = shardwise.device_count()
    platforms = sorted({device.platform for device in shardwise.devices()})
    yield f"{count} {'/'.join(platforms)} ({shardwise.process_count()} process); set by --devices, JAX_NUM_CPU_DEVICES"


def _mpi() -> Iterable[str]:
    if _version("mpi4py") is None:
        yield "mpi4py is not installed: pip install mpi4py mpich"
        return
    # Asked in a process of its own: loading a broken MPI can end the process that tries.
    question = "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI", "PMIX"))}
    answer = subprocess.run(
        [sys.executable, "-c", question],
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    if answer.returncode:
        yield "mpi4py finds no usable MPI library: " + (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
    else:
        yield answer.stdout.strip().rstrip("\x00")
    beside = Path(sys.executable).with_name("mpiexec")
    yield f"mpiexec: {beside if beside.exists() else shutil.which('mpiexec') or 'not found'}"


def _settings() -> Iterable[str]:
    """Options that are not as they were made, with a word on those that change nothing."""
    changed_rows = [row for row in OPTIONS if config.read(row.name) != row.default]
    for row in changed_rows:
        reason = NO_EFFECT.get(row.name)
        yield f"{row.name} = {config.read(row.name)!r}" + (f" (no effect: {reason[1]})" if reason else "")
    if not changed_rows:
        yield "as they come"


_SECTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "versions": _versions,
    "dialect": _dialect,
    "CPU": _cpu,
    "BLAS": _blas,
    "devices": _devices,
    "MPI": _mpi,
    "settings": _settings,
}
