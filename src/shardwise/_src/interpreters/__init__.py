"""`interpreters`: rules of primitives, and tracing."""

from shardwise.interpreters import ad as ad
from shardwise.interpreters import batching as batching
from shardwise.interpreters import mlir as mlir
from shardwise.interpreters import partial_eval as partial_eval
from shardwise.interpreters import pxla as pxla
