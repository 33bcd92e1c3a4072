"""Counting what this process sends to the other processes of the program."""

from shardwise.runtime.processes import Traffic as Traffic
from shardwise.runtime.processes import count_traffic as count_traffic
