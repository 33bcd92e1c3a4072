"""There is no XLA compiler: the module is here for code that looks in it for functions to wrap, and finds none."""
