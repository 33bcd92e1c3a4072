"""Programs as users see them: JAX's text, views and primitives."""
