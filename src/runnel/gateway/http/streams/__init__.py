"""Messages out as they arrive: feeds, which read a topic once for all its streams, SSE and WebSocket."""
