"""The sections of docs/plan-accuracy.md, a file each with a function that gives its text; `plan.py` puts them together."""
