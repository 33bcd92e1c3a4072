"""A call taken apart and traced: its arguments, its leaves, its checks, its names."""
