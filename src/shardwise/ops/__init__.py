"""The ops: each one its type rule, sharding rule, kernel and derivatives in one place."""
