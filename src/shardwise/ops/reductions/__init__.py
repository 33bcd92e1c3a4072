"""Reductions: over dims, running, over windows and by segment."""
