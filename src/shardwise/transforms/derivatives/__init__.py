"""Derivatives as users ask for them and as they give them by hand."""
