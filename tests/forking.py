"""A process that has imported shardwise and runs each program in a fork of itself: importing takes longer than most programs do.

``python forking.py`` reads lines of JSON with the paths of a program and of the files for its two outputs, and answers each with the
exit status. A program finds no state of another.
"""

from __future__ import annotations

import json
import os
import runpy
import sys


def serve() -> str | None:
    """In a fork, the program that it is to run; None at the end of the requests."""
    for line in sys.stdin:
        program, out, err = json.loads(line)
        child = os.fork()
        if not child:
            files = (os.devnull, os.O_RDONLY), (out, os.O_WRONLY | os.O_CREAT), (err, os.O_WRONLY | os.O_CREAT)
            for number, (path, flags) in enumerate(files):
                os.dup2(os.open(path, flags), number)
            return program
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


if __name__ == "__main__":
    import shardwise.numpy  # noqa: F401

    chosen = serve()
    if chosen is not None:
        sys.argv[:] = [chosen]
        sys.path[0] = os.path.dirname(chosen)
        runpy.run_path(chosen, run_name="__main__")
