"""`forgetless train recognizer`: a recogniser of standing instructions, from labelled messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from forgetless.cli.files import write
from forgetless.datasets.logs import read_logs
from forgetless.errors import ConfigError
from forgetless.training.recognizer import examples, ship, table

__all__ = ["recognizer"]


def recognizer(
    *,
    data: Annotated[tuple[Path, ...], Parameter(consume_multiple=True)],
    out: Path,
    ordinary: Annotated[tuple[Path, ...], Parameter(consume_multiple=True)] = (),
    seed: int = 0,
) -> None:
    """Learn to tell standing instructions from all else that users say.

    Args:
        data: files of JSON lines: `text`, `label` (whether it holds one), and with a true one `instruction`, the pieces
            of the text that do; or files of MT-Eval and IFEval.
        out: the weights file to write.
        ordinary: logs, as in `train lre`, whose user messages are taken for what users mostly say: no instructions.
            Without any, long messages of everyday talk are taken for instructions too often.
        seed: of the folds that the threshold and the figures come from.
    """
    missing = [str(path) for path in data if not path.is_file()] + [str(p) for p in ordinary if not p.exists()]
    if missing:
        raise ConfigError(f"there is no file {', '.join(map(repr, missing))}")
    said = [unit.text for log in read_logs(ordinary) for unit in log.units if unit.kind == "user"]
    found = examples(data, said)
    weights = ship(table(found), about=", ".join(path.name for path in (*data, *ordinary))[:200], seed=seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.name}.partial")
    partial.write_text(weights.dump(), encoding="utf-8")
    partial.replace(out)
    told = weights.training
    figures = told["left_out"]
    lines = (
        f"{told['messages']:,} messages, {told['positive']:,} of them with an instruction",
        f"accuracy {figures['accuracy']:.3f}, precision {figures['precision']:.3f}, recall {figures['recall']:.3f} on "
        "messages that were left out of the fit",
        f"{out}: {out.stat().st_size:,} bytes, version {weights.version}",
    )
    write(("\n".join(lines) + "\n").encode())
