"""What providers accept, written down from their own rules and errors, and independent of our dialects."""
