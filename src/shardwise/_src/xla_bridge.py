"""There is one backend, made with the process; none is registered by name."""

_backends: dict[str, object] = {}
