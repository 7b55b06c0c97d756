"""TLS without sockets: key material, contexts, and connections as bytes in, bytes out."""
