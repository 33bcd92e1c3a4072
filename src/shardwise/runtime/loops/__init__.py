"""Loop nests: their form and its text (`nest`), vectors in memory (`write`), order in memory (`layout`), functions and calls of them."""
