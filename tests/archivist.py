"""A stand-in for the model of a terminal agent: it works on the task `examples/harbor/archive`.

It acts on what stands in the messages that it is sent and on nothing else, and notes nothing down unless it is asked
for a memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from forgetless.models.scripted import Scripted

__all__ = ["KEY", "PAGES", "archivist", "texts"]

PAGES, KEY = 4, "K7-4821"


def texts(body: Mapping[str, Any]) -> list[str]:
    """The texts of the messages in a request."""
    contents = [message["content"] for message in body["messages"]]
    return [c if isinstance(c, str) else "\n".join(block["text"] for block in c) for c in contents]


def archivist() -> Scripted:
    """The model."""
    return Scripted(_reply)


def _reply(body: Mapping[str, Any]) -> str:
    said = texts(body)
    everything, newest = "\n".join(said), said[-1]
    read = max(map(int, re.findall(r"page (\d+), line", everything)), default=0)
    key = next(iter(re.findall(r"key of the archive is (\S+)", everything)), "")
    done = "it is written" in newest.replace("echo it is", "") or "Are you sure" in newest
    if done:
        keys = ""
    elif read < PAGES or not key:
        keys = f"cat pages/{read + 1 if read < PAGES else 1}.txt\n"
    else:
        keys = f"echo {key} > answer.txt && echo it is written\n"
    memory = f"the key of the archive is {key}\npage {read}, line 60: read so far" if key else "nothing found yet"
    return json.dumps(
        {
            **({"context_window": memory} if "context_window" in said[0] else {}),
            "analysis": f"{read} of {PAGES} pages are read.",
            "plan": "Go on, in order.",
            "commands": [{"keystrokes": keys, "duration": 0.2}] if keys else [],
            "task_complete": done,
        }
    )
