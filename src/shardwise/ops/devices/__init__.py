"""Ops over devices: a file per collective, and what they share.

A collective's file holds all of it: type rule, block kernel, kernel over processes, batching, derivatives, and the `Collective` that
tells costs, `explain` and the stepped executor what it is; `Shown` is how JAX's programs print it.
"""
