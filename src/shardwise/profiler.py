"""`shardwise.profiler`: a timeline of compiled programs and their equations, for xprof and TensorBoard, and as a Chrome trace.

While a trace runs, Python tells it of each generated plan that is entered and of each of its lines, each of which belongs to an
equation; nothing is recorded or slowed down otherwise. Open the Chrome trace at ui.perfetto.dev, the
folder with ``xprof`` or ``tensorboard --logdir``.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ContextDecorator, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.protobuf import block, number, numbers, text
from shardwise.base.wrapping import wraps
from shardwise.engine.live import live_arrays
from shardwise.sharding import devices, process_count, process_index
from shardwise.transforms.reports import ProfileData, ProfileEvent, ProfilePlane, Timeline, running_timeline, xspace_of
from shardwise.version import __version__

__all__ = [
    "ProfileData", "ProfileEvent", "ProfileOptions", "ProfilePlane", "StepTraceAnnotation", "TraceAnnotation", "annotate_function",
    "device_memory_profile", "register_subprocess", "save_device_memory_profile", "start_server", "start_trace", "stop_server",
    "stop_trace", "trace",
]  # fmt: skip


@dataclass(slots=True)
class ProfileOptions:
    """The contents of a profile. `start_trace` takes the defaults; it refuses other values, which only XLA's profiler reads."""

    advanced_configuration: dict[str, Any] = field(default_factory=dict)
    duration_ms: int = 0
    enable_hlo_proto: bool = True
    host_tracer_level: int = 2
    include_dataset_ops: bool = True
    python_tracer_level: int = 1
    raise_error_on_start_failure: bool = False
    repository_path: str = ""
    session_id: str = ""
    start_timestamp_ns: int = 0


_recorder: list[
    tuple[Timeline, Path, bool]
] = []  # the one that runs, its folder, and whether it is written for Perfetto, too


def start_trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Start recording compiled programs for a file below `log_dir`. RuntimeError if a recording is active.

    Profiles have a line per thread, with each kernel for all devices of the process. `create_perfetto_trace` writes the Chrome trace a
    second time, as ``perfetto_trace.json.gz``.

    Args:
        create_perfetto_link: only False; NotImplementedError otherwise.
        profiler_options: only with its defaults; NotImplementedError otherwise.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     jax.profiler.start_trace(folder)
    ...     _ = jax.jit(jnp.sin)(0.0)
    ...     jax.profiler.stop_trace()
    """
    if create_perfetto_link:
        raise NotImplementedError(
            "create_perfetto_link: nothing is served. Open the file that stop_trace writes at ui.perfetto.dev."
        )
    if profiler_options is not None:
        usual = ProfileOptions()
        for name in ProfileOptions.__slots__:
            value = getattr(profiler_options, name)
            if value != getattr(usual, name):
                raise NotImplementedError(
                    f"profiler_options.{name}={value!r}: only XLA's profiler reads it; leave it at its default."
                )
    timeline = Timeline()
    timeline.start()
    _recorder.append((timeline, Path(log_dir), create_perfetto_trace))


def stop_trace() -> None:
    """End the recording. Below its directory are then ``plugins/profile/<time>/<host>.xplane.pb`` and, beside it, ``<host>.trace.json.gz``.

    The first is for xprof, TensorBoard and `ProfileData`; the second, a Chrome trace, for ui.perfetto.dev. RuntimeError if there
    is no recording.

    >>> jax.profiler.stop_trace()
    Traceback (most recent call last):
        ...
    RuntimeError: No profile started: call start_trace first.
    """
    if not _recorder:
        raise RuntimeError("No profile started: call start_trace first.")
    timeline, directory, perfetto = _recorder.pop()
    timeline.stop()
    folder = directory / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
    folder.mkdir(parents=True, exist_ok=True)
    rank = f".{process_index()}" if process_count() > 1 else ""  # processes of one host write side by side
    host = f"{socket.gethostname()}{rank}"
    about = {"shardwise_version": __version__, "process_index": process_index(), "process_count": process_count()}
    (folder / f"{host}.xplane.pb").write_bytes(xspace_of(timeline, host, about))
    document = json.dumps(timeline.document())
    names = ["perfetto_trace"] if perfetto else []
    for name in (f"{host}.trace", *names):
        with gzip.open(folder / f"{name}.json.gz", "wt", encoding="utf-8") as file:
            file.write(document)


@contextmanager
def trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Generator[None]:
    """`start_trace` with `log_dir`, `create_perfetto_link`, `create_perfetto_trace` and `profiler_options` and, at
    the end of the block, `stop_trace`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
    ...     print(jax.jit(jnp.sin)(0.0))
    0.0
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation(ContextDecorator):
    """A context manager (and decorator): an event of that name in the timeline, with `kwargs` as its arguments."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self.kwargs = kwargs
        self._begins: list[float] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether a trace is running, which keeps the event."""
        return running_timeline() is not None

    def set_metadata(self, **kwargs: Any) -> None:
        """Add arguments to the event."""
        self.kwargs.update(kwargs)

    def __enter__(self) -> TraceAnnotation:
        self._begins.append(time.perf_counter())
        return self

    def __exit__(self, *exc: object) -> None:
        begin = self._begins.pop()
        timeline = running_timeline()
        if timeline is not None:
            about = {k: str(v) for k, v in self.kwargs.items()}
            timeline.add(self.name, "annotation", begin, time.perf_counter(), about)


class StepTraceAnnotation(TraceAnnotation):
    """A `TraceAnnotation` for one step of a loop: give its number as `step_num`."""


def annotate_function(func: Callable[..., Any], name: str | None = None, **decorator_kwargs: Any) -> Callable[..., Any]:
    """`func` with a `TraceAnnotation` of `name` (default: its own name) and `decorator_kwargs` around each call.

    >>> jax.profiler.annotate_function(jnp.sin, name="wave")(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    shown_name = name or getattr(func, "__qualname__", None) or func.__name__

    @wraps(func)
    def annotated_call(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(shown_name, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated_call


def device_memory_profile(backend: str | None = None) -> bytes:
    r"""The live arrays as a gzipped profile for ``pprof``: samples of "allocations" and "space", one per array and
    device.

    A sample's function is the array's type and sharding, its labels are ``kind`` and ``device``. Bytes are those of
    the device's shard; replicas count on each device, though they are stored once. `backend`: None or 'cpu';
    RuntimeError for another platform.

    >>> jax.profiler.device_memory_profile()[:2]  # gzip's mark
    b'\x1f\x8b'
    """
    device_names = {str(d) for d in devices(backend)}
    samples: Counter[tuple[str, str, int]] = Counter()
    for x in live_arrays():
        size = math.prod(x.sharding.shard_shape(x.shape)) * x.itemsize
        for device in map(str, x._sig.devices):
            if device in device_names:
                samples[f"{x.aval.str_short()} {x.sharding}", device, size] += 1
    return gzip.compress(_pprof(samples))


def _pprof(samples: Mapping[tuple[str, str, int], int]) -> bytes:
    """A message Profile of pprof's profile.proto: a location and a function for each name, texts in one table."""
    texts: dict[str, int] = {"": 0}
    functions: dict[str, int] = {}

    def place(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def label_block(key: str, value: str) -> bytes:
        return block(3, number(1, place(key)) + number(2, place(value)))

    body = b"".join(
        block(1, number(1, place(kind)) + number(2, place(unit)))
        for kind, unit in (("allocations", "count"), ("space", "bytes"))
    )
    for (name, device, size), count in samples.items():
        location = functions.setdefault(name, len(functions) + 1)
        values = numbers(1, [location]) + numbers(2, [count, count * size])
        body += block(2, values + label_block("kind", "buffer") + label_block("device", device))
    for name, i in functions.items():
        body += block(4, number(1, i) + block(4, number(1, i)))
        body += block(5, number(1, i) + number(2, place(name)) + number(3, place(name)))
    return body + b"".join(text(6, t) for t in texts) + number(14, place("space"))


def save_device_memory_profile(filename: str | os.PathLike[str], backend: str | None = None) -> None:
    """Write `device_memory_profile` to the file `filename`, for ``pprof -top`` or ``pprof -web``. `backend` as there.

    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     jax.profiler.save_device_memory_profile(f"{folder}/memory.prof")
    ...     print(os.listdir(folder))
    ['memory.prof']
    """
    Path(filename).write_bytes(device_memory_profile(backend))


def start_server(port: int, requires_backend: bool = True) -> Any:
    """Not available: nothing collects profiles over the network. Whatever `port` and `requires_backend` are,
    NotImplementedError names `trace`.

    >>> jax.profiler.start_server(9999)
    Traceback (most recent call last):
        ...
    NotImplementedError: start_server(9999): profiles are not served. Use profiler.trace(log_dir) in the program.
    """
    raise NotImplementedError(
        f"start_server({port}): profiles are not served. Use profiler.trace(log_dir) in the program."
    )


def register_subprocess(pid: int, port: int) -> Any:
    """Not available, like `start_server`: whatever `pid` and `port` are, NotImplementedError.

    >>> jax.profiler.register_subprocess(1, 9999)
    Traceback (most recent call last):
        ...
    NotImplementedError: register_subprocess(1, 9999): profiles are not served. ...
    """
    raise NotImplementedError(
        f"register_subprocess({pid}, {port}): profiles are not served. Use profiler.trace(log_dir) in that process, too."
    )


def stop_server() -> None:
    """Not available, like `start_server`: NotImplementedError.

    >>> jax.profiler.stop_server()
    Traceback (most recent call last):
        ...
    NotImplementedError: stop_server: there is no profiler server. Use profiler.trace(log_dir).
    """
    raise NotImplementedError("stop_server: there is no profiler server. Use profiler.trace(log_dir).")


__dir__ = _listing(__name__)
