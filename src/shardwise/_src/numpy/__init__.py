"""`numpy`: parts of its functions that libraries import by private names. They refuse when they are used."""

from shardwise.base.refused import refuse_below

refuse_below(__name__, ("einsum",))
