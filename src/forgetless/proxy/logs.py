"""The log: a JSON object a line on stderr, with numbers and ids, and nothing that anybody said."""

from __future__ import annotations

import json
import logging
import sys

__all__ = ["Lines", "logs"]


def logs() -> None:
    """Send the log of this process to stderr; of the libraries what is a warning or worse."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.getLogger().handlers = [handler]
    logging.getLogger("forgetless").setLevel(logging.INFO)


class Lines(logging.Formatter):
    """A record as one JSON line; `extra={"data": {...}}` adds fields. Of an exception its kind alone is told."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        data = dict(getattr(record, "data", {}))
        if record.exc_info and record.exc_info[0] is not None:
            data["error"] = record.exc_info[0].__name__
        event = record.getMessage().strip()
        line = {"at": self.formatTime(record), "level": record.levelname.lower(), "event": event, **data}
        return json.dumps(line, ensure_ascii=True, default=str)
