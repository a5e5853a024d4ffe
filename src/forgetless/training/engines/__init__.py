"""Adapters to distributed training engines: the same samples, masks, advantages and loss, on their workers."""

from pathlib import Path

__all__ = ["CONFIGS"]

CONFIGS = Path(__file__).parent / "configs"
"""Folder of the runs' settings, one file an environment and engine."""
