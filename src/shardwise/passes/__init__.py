"""Passes: Program in, Program out. propagate gives every value a layout, partition makes communication explicit."""
