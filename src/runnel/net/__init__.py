"""The network layer: listener, connections, frames."""
