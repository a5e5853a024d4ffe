"""Made agent runs: what a step brings in alone is used by the next steps, what comes in a crowd is not."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from forgetless.datasets.logs import Log, units_of


def run(seed: int, steps: int = 12) -> list[dict[str, Any]]:
    """The messages of a run on a task of its own."""
    rng = Random(seed)
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"finish the job in /srv/task_{seed}"}]
    job = "/srv/start.txt"
    for number in range(steps):
        call = {"name": "sh", "arguments": json.dumps({"do": f"cat {job}"})}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}],
            }
        )
        crowd = [f"/var/log/{rng.randrange(10**6):06}.log" for _ in range(rng.randrange(8, 14))]
        if number % 2:
            shown = "\n".join(crowd)
        else:
            job = f"/srv/job_{rng.randrange(10**6):06}.txt"
            shown = f"the next one is {job}"
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": shown})
    return messages


def log(seed: int, steps: int = 12) -> Log:
    """The same as a log; `seed` names its task."""
    return Log(f"task{seed}/a", units_of(run(seed, steps)))
