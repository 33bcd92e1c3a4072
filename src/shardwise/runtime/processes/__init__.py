"""Several processes: what they send each other, and how they stay in step."""
