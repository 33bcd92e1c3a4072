"""Random bits from keys, and the elementwise steps from bits to numbers."""
