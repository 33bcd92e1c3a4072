"""Groups of elementwise ops and reductions as one loop over large blocks."""
