"""`pjit`: the primitive of calls of compiled functions."""

from shardwise.extend.core.primitives import jit_p as jit_p

pjit_p = jit_p
