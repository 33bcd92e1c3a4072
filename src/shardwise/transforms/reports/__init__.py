"""What is known of a compiled program: its layouts and collectives, its cost, its memory."""
