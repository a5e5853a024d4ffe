"""A provider on a loopback port, which answers what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Provider:
    """What to answer with; `chunks` go out one by one."""

    url: str = ""
    status: int = 200
    kind: str = "application/json"
    chunks: tuple[bytes, ...] = ()

    def streams(self, *chunks: bytes) -> None:
        self.status, self.kind, self.chunks = 200, "text/event-stream", chunks

    def answers(self, body: bytes, status: int = 200) -> None:
        self.status, self.kind, self.chunks = status, "application/json", (body,)


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    told = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(told.status)
            self.send_header("content-type", told.kind)
            self.end_headers()
            for chunk in told.chunks:
                self.wfile.write(chunk)
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()
