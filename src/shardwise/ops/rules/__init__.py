"""Helpers shared by op definitions: user operands, dims, derivative and batching rules, precision."""
