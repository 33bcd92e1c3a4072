"""Matrix products: on our own BLAS, on the matrix unit, in panels with what follows them."""
