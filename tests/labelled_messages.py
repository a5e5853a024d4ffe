"""Labelled messages of a made-up kind, for what learns to recognise instructions."""

from __future__ import annotations

import json
from pathlib import Path

RULES = ("Always answer in {}.", "From now on write {} only.", "Never use {} with me, please.")
TALK = ("I like {} a lot.", "What is {} made of?", "We went to see {} yesterday.")
THINGS = ("French", "tables", "emojis", "Latin", "prose", "lists", "slang", "verse", "bread", "glass")


def write(path: Path) -> Path:
    """A file of 60 messages, half of them with an instruction, some of these beside other words."""
    lines = []
    for at, thing in enumerate(THINGS):
        for number in range(3):
            rule, talk = RULES[number].format(thing), TALK[number].format(thing)
            mixed = at % 2 == 0
            text = f"{TALK[0].format(thing)} {rule}" if mixed else rule
            lines.append({"text": text, "label": True, "language": "en", "kind": "mixed" if mixed else "plain",
                          "instruction": [rule]})  # fmt: skip
            lines.append({"text": talk, "label": False, "language": "en", "kind": "talk"})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
