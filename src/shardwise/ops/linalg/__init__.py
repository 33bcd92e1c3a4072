"""Linear algebra on stacks of matrices, and Fourier transforms."""
