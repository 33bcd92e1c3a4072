"""Binding and tracing a call: its arguments, leaves, checks and names."""
