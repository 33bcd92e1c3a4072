"""Ops over devices: a file per collective, and their shared code.

A collective's file holds its whole definition: type rule, block kernel, kernel over processes, batching, derivatives, and the
`Collective` record that the cost model, `explain` and the stepped executor read. `Shown` gives the form in which JAX prints it.
"""
