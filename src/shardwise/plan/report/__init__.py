"""A `Plan` as a terminal page, an HTML page, JSON, and traces for other tools."""
