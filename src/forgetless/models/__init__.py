"""Models: any OpenAI-compatible server, the embedded one, a scripted one for tests and demonstrations."""
