"""Reading and writing at computed positions, sorting and searching."""
