"""The model of machines that one does not have: from a per-device program to its memory, traffic and time there.

In: a `DeviceProgram` and a `Machine`. Out: a `Plan`. Everything here works on types alone.
"""
