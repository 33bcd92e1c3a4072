"""Tuples that annotations of all rooms name: shapes, other integers, and axes of meshes."""

Shape = tuple[int, ...]
Ints = tuple[int, ...]  # positions, strides, counts
Axes = tuple[str, ...]  # names of axes, major first
DimAxes = tuple[Axes, ...]  # per dim, the axes that split it
