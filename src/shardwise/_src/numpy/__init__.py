"""`numpy`: its functions by the names of the modules that hold them in JAX."""
