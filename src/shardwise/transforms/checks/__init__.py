"""`checkify`: errors as values."""
