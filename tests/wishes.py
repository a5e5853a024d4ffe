"""What tests of standing instructions share: a conversation that gives some, and a recogniser that finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forgetless.sentences import sentences

CUES = ("from now on", "never", "always", "instead", "forget", "for the next", "ledger", "合同")


def cued(text: str) -> Sequence[tuple[int, int]]:
    """A recogniser for tests: sentences with a cue."""
    return [span for span in sentences(text) if any(cue in text[span[0] : span[1]].lower() for cue in CUES)]


def talk(*said: str, after: int = 8) -> list[dict[str, Any]]:
    """A conversation that says some things early, and then goes on for long about others."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello there, I manage a mailbox."}]
    messages.append({"role": "assistant", "content": "Good."})
    for text in said:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "Understood."}]
    for turn in range(after):
        messages.append({"role": "user", "content": f"Step {turn}: " + "harbour garden window " * 12})
        messages.append({"role": "assistant", "content": f"Reply {turn}: " + "marble timber pepper " * 30})
    return [*messages, {"role": "user", "content": "Answer the landlord about the window."}]
