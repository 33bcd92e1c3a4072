"""Derivatives: the functions that compute them, and functions with derivatives given by hand."""
