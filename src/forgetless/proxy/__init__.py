"""The HTTP proxy, the only asynchronous part."""
