"""Reads and writes at computed positions, sorting and searching."""
