"""`forgetless train rea-thresholds`: where replies are left out, compressed or kept raw, from logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from forgetless.cli.files import write
from forgetless.datasets.logs import read_logs
from forgetless.errors import ConfigError
from forgetless.policies.rea.similarity import similarity
from forgetless.training.rea import calibrate
from forgetless.training.relevance import questions

__all__ = ["rea_thresholds"]

LEAST = 4
"""Units before a question: dialogues may be short, since only replies are compared."""

Many = Parameter(consume_multiple=True)


def rea_thresholds(
    *,
    data: Annotated[tuple[Path, ...], Many],
    out: Path,
    near: Annotated[tuple[str, ...], Many] = ("bm25",),
    label: str = "best",
) -> None:
    """Calibrate the thresholds of the policy `rea` for each similarity.

    Args:
        data: logs, as in `train lre`.
        out: the file to write.
        near: similarities: bm25, dense, latent, or latent#FOLDER for adapters of your own, into whose folder
            `thresholds.json` belongs.
        label: what counts as needed, as in `train lre`.
    """
    missing = [str(path) for path in data if not path.exists()]
    if missing:
        raise ConfigError(f"there is no file or folder {', '.join(map(repr, missing))}")
    found = [question for log in read_logs(data) for question in questions(log, label, LEAST)]
    about = ", ".join(path.name for path in data)
    made = {name: calibrate(found, similarity(name)) for name in near}
    content = {
        "about": f"{about}, rule {label}, {len(found)} questions",
        "near": {name.partition("#")[0]: [each.low, each.high] for name, each in made.items()},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content) + "\n", encoding="utf-8")
    lines = [
        f"{name}: left out below {each.low:.2f}, raw above {each.high:.2f}. Of {each.needed:,} replies that "
        f"{len(found):,} questions needed, {each.raw:.0%} stay raw; of {each.others:,} others {each.left_out:.0%} are "
        "left out"
        for name, each in made.items()
    ]
    write(("\n".join(lines) + "\n").encode())
