"""Control flow, named as in jax.lax: `while_loop`, `fori_loop`, `scan`, `cond`, `switch`, `associative_scan`."""

from shardwise.ops.control.cond import cond as cond
from shardwise.ops.control.cond import cond_p as cond_p
from shardwise.ops.control.cond import platform_dependent as platform_dependent
from shardwise.ops.control.cond import switch as switch
from shardwise.ops.control.fori_loop import fori_loop as fori_loop
from shardwise.ops.control.scan import scan as scan
from shardwise.ops.control.scan import scan_p as scan_p
from shardwise.ops.control.while_loop import while_loop as while_loop
from shardwise.ops.control.while_loop import while_p as while_p
from shardwise.ops.reductions.associative_scan import associative_scan as associative_scan

__all__ = [
    "associative_scan",
    "cond",
    "cond_p",
    "fori_loop",
    "platform_dependent",
    "scan",
    "scan_p",
    "switch",
    "while_loop",
    "while_p",
]
