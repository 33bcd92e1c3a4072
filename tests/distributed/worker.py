"""One of the processes that run programs together: `python worker.py blocked|interleaved JOBS ANSWERS [FIRST]`.

JOBS is a pickled list of (name, source, dialect, whether arrays are read as on one process). Each process appends to
ANSWERS.<rank> for each program its name, before it begins, and then what `tests/differential/worker.py` tells of it: so it is
known which program ended the processes, if one does, and the next launch goes on behind it.
"""

from __future__ import annotations

import gc
import importlib.util
import pickle
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def loaded(path: Path) -> Any:
    """The module at `path`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run all jobs from number FIRST on."""
    order, jobs, answers = sys.argv[1:4]
    first = int(sys.argv[4]) if sys.argv[4:] else 0
    from shardwise import alias
    from shardwise.runtime.processes import comm, number_of

    describing = loaded(HERE.parent / "differential" / "worker.py")
    jax = alias.install()
    jax.distributed.initialize(heartbeat_timeout_seconds=30, shutdown_timeout_seconds=30)
    world, view = comm.world(), nullcontext
    if world is not None:
        viewing = loaded(HERE / "one_view.py")
        viewing.number_devices(order == "interleaved")
        view = viewing.one_view
    gc.collect()
    gc.freeze()  # modules stay
    gc.set_threshold(5000, 10, 10)
    everyone = tuple(range(jax.process_count()))
    with open(f"{answers}.{jax.process_index()}", "ab", buffering=0) as out:
        for name, source, dialect, viewed in pickle.loads(Path(jobs).read_bytes())[first:]:
            out.write(pickle.dumps(name))
            jax.config.update("shardwise_dialect", dialect)
            if world is not None:
                world.meet(everyone, number_of(name), lambda name=name: f"the program {name!r}")
            with view() if viewed else nullcontext():
                out.write(pickle.dumps(describing.run(jax, source)))


if __name__ == "__main__":
    main()
