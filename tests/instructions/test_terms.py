"""What an instruction is about, and what it ends."""

from __future__ import annotations

import pytest

from forgetless.instructions.terms import terms


@pytest.mark.parametrize(
    ("earlier", "later", "ended"),
    [
        ("Answer in French.", "write in Spanish instead", True),
        ("Answer in French.", "Please use English from here on", True),
        ("Antworte auf Deutsch.", "Ab jetzt bitte auf Englisch", True),
        ("Responde siempre en español.", "A partir de ahora responde en inglés", True),
        ("Réponds en français.", "Désormais, réponds en anglais", True),
        ("请用中文回答。", "从现在起用英文回答", True),
        ("日本語で答えてください。", "これからは英語で答えて", True),
        ("Keep all answers under 50 words.", "forget the word limit", True),
        ("Keep all answers under 50 words.", "From now on at most 20 words.", True),
        ("Call me Ana.", "Call me Dr Weber, please.", True),
        ("You are a pirate.", "You are a butler now.", True),
        ("Never touch the migrations folder.", "Forget the rule about the migrations folder.", True),
        ("Keep all answers under 50 words.", "Keep code comments short.", False),
        ("Answer in French.", "Keep all answers under 50 words.", False),
        ("Answer in French.", "Use bullet points from now on.", False),
        ("Never touch the migrations folder.", "Never touch the secrets folder.", False),
        ("Answer in French.", "For the next two replies, answer in English.", False),
        ("Answer in French.", "forget the word limit", False),
    ],
)
def test_what_ends_what(earlier: str, later: str, ended: bool) -> None:
    assert terms(later).ends(terms(earlier)) is ended


@pytest.mark.parametrize(
    ("text", "replies"),
    [
        ("For the next three replies, use bullet points.", 3),
        ("for the next 2 messages speak like a pirate", 2),
        ("In den nächsten zwei Antworten bitte keine Listen.", 2),
        ("En las próximas tres respuestas usa solo español.", 3),
        ("Pour les deux prochaines réponses, sois bref.", 2),
        ("接下来三次回答请用英文。", 3),
        ("次の2回は短く答えて。", 2),
        ("Always answer in three sentences.", 0),
    ],
)
def test_how_long_it_holds(text: str, replies: int) -> None:
    assert terms(text).replies == replies
