"""The traces that interpret ops: batching, forward mode, linearization, and programs transformed by them."""
