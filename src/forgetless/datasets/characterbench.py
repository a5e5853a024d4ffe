"""CharacterBench: a character answers the user's last turn, in Chinese and in English (Zhou et al., 2025).

Thirteen dimensions, a file each, in six aspects. The replies before the last one stand as the file has them; some
dimensions give the judge a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forgetless.datasets.judged import Dialogue, Turn, entries
from forgetless.errors import ConfigError

__all__ = ["ASPECTS", "read_characterbench"]

ASPECTS: Mapping[str, str] = {
    "memory_consistency": "memory",
    "fact_accuracy": "knowledge",
    "boundary_consistency": "knowledge",
    "attribute_consistency_bot": "persona",
    "attribute_consistency_human": "persona",
    "behavior_consistency_bot": "persona",
    "behavior_consistency_human": "persona",
    "emotion_self_regulation": "emotion",
    "empathetic_responsiveness": "emotion",
    "morality_stability": "morality",
    "morality_robustness": "morality",
    "human_likeness": "believability",
    "engagement": "believability",
}
"""Of each dimension."""

_REFERENCES = ("dialogue_segments", "answer", "reference", "emotion", "character_style", "reference_response")
"""Where the files hold what the judge is to compare with."""

_END = "_test.json"


def read_characterbench(path: Path) -> list[Dialogue]:
    """The dialogues of a folder's `<dimension>_test.json`, or of one such file; each in both languages.

    Raises:
        ConfigError: there is none, or one can't be read or is in another layout.
    """
    names = [f"{dimension}{_END}" for dimension in ASPECTS]
    files = [path / name for name in names if (path / name).exists()] if path.is_dir() else [path]
    if not files or any(file.name not in names for file in files):
        raise ConfigError(f"{str(path)!r} is no file of CharacterBench, such as {names[0]!r}, and holds none")
    return [dialogue for file in files for dialogue in _read(file)]


def _read(file: Path) -> list[Dialogue]:
    dimension = file.name.removesuffix(_END)

    def both(number: int, value: Mapping[str, Any]) -> list[Dialogue]:
        spoken = {"zh": value, "en": value["translation_en"]} if value.get("translation_en") else {"zh": value}
        return [_dialogue(f"{dimension} {number}", language, dimension, said) for language, said in spoken.items()]

    return entries(file, "CharacterBench", both)


def _dialogue(name: str, language: str, dimension: str, value: Mapping[str, Any]) -> Dialogue:
    character, profile = str(value["character_name"]), str(value["character_profile"])
    said = [str(one["utterance"]) for one in value["dialogue"]]  # user and character in turn, the user last
    opening = said.pop(0) if len(said) % 2 == 0 else str(value.get("greeting") or "")
    turns = [Turn(user, reply, judged=False) for user, reply in zip(said[::2], said[1::2], strict=False)]
    last = Turn(said[-1], reference=_reference(value))
    system = f"Play {character} and say only what {character} says, in the language of the user. Profile: {profile}"
    system += f"\nFirst {character} said: {opening}" if opening not in ("", "N/A") else ""
    about = f"Dimension: {dimension.replace('_', ' ')}\nCharacter: {character}\nProfile: {profile}"
    return Dialogue(f"{name} {language}", f"{language} {ASPECTS[dimension]}", (*turns, last), system, about)


def _reference(value: Mapping[str, Any]) -> str:
    places = [value.get("messages") or {}, value.get("response_messages") or {}]
    places[:0] = [place["output"] for place in places if isinstance(place.get("output"), Mapping)]
    for place in places:
        for name in _REFERENCES:
            if found := place.get(name):
                return "\n".join(map(str, found)) if isinstance(found, list) else str(found)
    return ""
