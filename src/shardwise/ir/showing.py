"""`SHOWING`: whether programs are traced to be shown, as `make_jaxpr` does, rather than to be compiled.

Programs that are shown have the equations that JAX's have. The compiler gets by with fewer: a select broadcasts scalars, a slice
counts negative starts from the end, and functions that JAX compiles by themselves need no calls.
"""

from __future__ import annotations

from shardwise.base.config import Setting

SHOWING: Setting[bool] = Setting("showing", False)
