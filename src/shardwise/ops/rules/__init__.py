"""What definitions share: operands as users give them, dims, derivative and batching rules, precision."""
