"""From signatures to results: concrete arrays and their placement, compiled programs, single ops, moves between layouts."""
