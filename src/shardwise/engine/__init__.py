"""From signatures to results: concrete arrays, where they lie, compiled programs, single ops, moves between layouts."""
