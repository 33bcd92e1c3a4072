"""Running programs: blocks, what kernels know of the grid, plans. In: per-device programs. Out: ndarrays."""
