"""Programs over small values as one machine function, loops and branches included."""
