"""Where commands of a task run: apart from the host, within limits, and leaving nothing behind."""
