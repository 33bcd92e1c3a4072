"""Derivatives and batching of ops that hold programs."""
