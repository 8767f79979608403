"""Everything that talks to NATS: one module per store, and the embedded server."""
