"""Products that sum over paired dims, and convolutions."""
