"""Reports on a compiled program: its layouts and collectives, its cost, its memory."""
