"""JAX's libraries, with their own tests, beside shardwise: `python -m tests.clients` makes docs/clients.md."""
