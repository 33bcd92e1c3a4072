"""`shardwise.monitoring`: events that the library and programs record, and listeners to them, named as in jax.monitoring."""

from shardwise.base.events import clear_event_listeners as clear_event_listeners
from shardwise.base.events import record_event as record_event
from shardwise.base.events import record_event_duration_secs as record_event_duration_secs
from shardwise.base.events import record_event_time_span as record_event_time_span
from shardwise.base.events import record_scalar as record_scalar
from shardwise.base.events import register_event_duration_secs_listener as register_event_duration_secs_listener
from shardwise.base.events import register_event_listener as register_event_listener
from shardwise.base.events import register_event_time_span_listener as register_event_time_span_listener
from shardwise.base.events import register_scalar_listener as register_scalar_listener
from shardwise.base.events import unregister_event_duration_listener as unregister_event_duration_listener
from shardwise.base.events import unregister_event_listener as unregister_event_listener
from shardwise.base.events import unregister_event_time_span_listener as unregister_event_time_span_listener
from shardwise.base.events import unregister_scalar_listener as unregister_scalar_listener
