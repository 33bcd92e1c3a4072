"""Code written per device: `shard_map`, `pmap`, stepping, explicit mode by hand."""
