"""`lax`: its functions and primitives by the name of the module that holds them in JAX."""

from shardwise import lax as lax
