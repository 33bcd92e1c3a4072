"""One of the processes that run programs as one: `python rank.py FOLDER`, with a pair of pipes per process in it."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent


def loaded(path: Path) -> Any:
    """The module at `path`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Serve until the other side closes the pipe."""
    from shardwise import alias

    describing, viewing = loaded(TESTS / "differential" / "worker.py"), loaded(TESTS / "distributed" / "one_view.py")
    jax = alias.install()
    jax.distributed.initialize(heartbeat_timeout_seconds=30, shutdown_timeout_seconds=30)
    viewing.number_devices(interleaved=True)  # so that small meshes lie on both processes
    rank, folder = jax.process_index(), Path(sys.argv[1])
    with (folder / f"request.{rank}").open("rb") as requests, (folder / f"answer.{rank}").open("wb") as answers:
        while head := requests.read(8):
            source = pickle.loads(requests.read(int.from_bytes(head, "little")))
            with viewing.one_view():
                answer = pickle.dumps(describing.run(jax, source))
            answers.write(len(answer).to_bytes(8, "little") + answer)
            answers.flush()


if __name__ == "__main__":
    main()
