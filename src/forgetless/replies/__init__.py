"""What comes back from a provider: reply bodies and event streams, one reader for each dialect."""
