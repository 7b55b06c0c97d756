"""Net: sockets in, frames out; the only room that knows how bytes travel."""
