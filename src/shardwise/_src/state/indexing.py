"""Slices whose start is known when the program runs."""

from shardwise.experimental.pallas import dslice as dslice
from shardwise.numpy.dynamic_index import Slice as Slice
