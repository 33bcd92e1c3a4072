"""Loop nests: the one writer of loops in LLVM text (`write`), functions (`function`), and the one way to call them (`call`)."""
