"""The network under both adapters: the embedded SmolLM2, made dense once, or any causal model that transformers loads.

A GGUF file takes transformers half a minute to read. What comes out is kept in the user's cache folder, with the hash
of what it was made from and of what was written; a copy that is not whole is made anew.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from forgetless.errors import ConfigError, MissingExtra
from forgetless.models.embedded import NAME, embedded_file

__all__ = ["Backbone", "cache_folder", "load_backbone", "quiet", "use_threads"]

MADE = "made.json"
"""Written last: hashes of the file that a copy was made from, and of the copy's own files."""

HELD = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True, slots=True)
class Backbone:
    """A causal language model of transformers with its tokenizer.

    Attributes:
        name: as a user names it.
        model: its weights frozen.
        tokenizer: its own.
    """

    name: str
    model: Any
    tokenizer: Any


def load_backbone(name: str | None = None) -> Backbone:
    """The embedded model in bfloat16, or the one in a folder or on a hub in the type that it was saved in.

    Args:
        name: a folder, or a name on the hub (`HF_HUB_OFFLINE=1` keeps to what was downloaded); None for the embedded.

    Raises:
        ConfigError: transformers finds no causal model there.
        MissingExtra: torch, transformers or the embedded model's package is not installed.
    """
    with quiet() as transformers:
        held = str(_dense(transformers) if name is None else name)
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(held, dtype="auto")
            tokenizer = transformers.AutoTokenizer.from_pretrained(held)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{name!r} is no causal model that transformers can load ({' '.join(str(error).split())[:200]}): give "
                "a folder or the name of one on the hub"
            ) from error
    return Backbone(name or NAME, model.requires_grad_(False).eval(), tokenizer)


def use_threads(threads: int) -> None:
    """Have torch compute with so many threads.

    Raises:
        ConfigError: there can't be so few.
        MissingExtra: torch, transformers or peft is not installed.
    """
    try:
        import peft  # noqa: F401 - what they bring is loaded later
        import torch
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("local", "torch, transformers and peft") from error
    if threads < 1:
        raise ConfigError(f"threads must be at least 1, not {threads!r}")
    torch.set_num_threads(threads)


def cache_folder() -> Path:
    """Where what takes long to make is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forgetless"


def _dense(transformers: Any) -> Path:
    """The folder of the embedded model's dense copy, which is made where there is none."""
    source = embedded_file()
    digest = _digest(source)
    folder = cache_folder() / f"{NAME}-{digest[:12]}"
    if _whole(folder, digest):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(dir=folder.parent))
    try:
        _convert(transformers, source, made)
        told = {"from": digest, "files": {file: _digest(made / file) for file in HELD}}
        (made / MADE).write_text(json.dumps(told, indent=2) + "\n", "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        made.replace(folder)
    except OSError:
        if not _whole(folder, digest):  # else another process was as fast
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _whole(folder: Path, digest: str) -> bool:
    try:
        told = json.loads((folder / MADE).read_text("utf-8"))
        return told["from"] == digest and all(_digest(folder / file) == told["files"][file] for file in HELD)
    except (OSError, ValueError, KeyError):
        return False


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _convert(transformers: Any, source: Path, folder: Path) -> None:
    import torch

    where = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name, "local_files_only": True}
    try:
        dequantize = transformers.GgufConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **where, quantization_config=dequantize, dtype=torch.bfloat16
        )
    except ImportError as error:
        raise MissingExtra("local", "gguf") from error
    vars(model.config).pop("quantization_config", None)  # the copy has none
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


@contextmanager
def quiet() -> Iterator[Any]:
    """Transformers, without its progress bars.

    Raises:
        MissingExtra: torch or transformers is not installed.
    """
    try:
        import torch  # noqa: F401 - without it transformers only says so when it loads
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra("local", "torch and transformers") from error
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        if shown:
            logging.enable_progress_bar()
