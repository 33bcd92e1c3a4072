"""Programs in JAX's form: text, views and primitives."""
