"""The comparison with peers: rows by peer, how they are measured and shown."""
