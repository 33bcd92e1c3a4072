"""What a `Plan` looks like: on a terminal, as one HTML page, as JSON, and as traces for other tools."""
