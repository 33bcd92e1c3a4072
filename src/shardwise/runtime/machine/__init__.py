"""Machine code: written as LLVM text, compiled, kept on disk, loaded; and the threads that run it."""
