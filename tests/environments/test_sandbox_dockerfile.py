"""Dockerfiles are read as Docker reads them, as far as tasks need it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.environments.sandbox.dockerfile import Instruction, expanded, installs, instructions, pairs

WRITTEN = r"""# a comment
FROM ubuntu:22.04 AS base

RUN mkdir a && \
    # between
    mkdir b \
    && mkdir c
RUN cat << 'EOF' > f && cat <<-END > g
# no comment, \
EOF
	here
	END
RUN grep x <<< "word" || echo $((1 << 2))
env  A=1
RUN ["echo", "x"]
"""


def test_instructions_with_continued_lines_and_here_documents() -> None:
    assert list(instructions(WRITTEN)) == [
        Instruction("FROM", "ubuntu:22.04 AS base", 2),
        Instruction("RUN", "mkdir a &&     mkdir b     && mkdir c", 4),
        Instruction("RUN", "cat << 'EOF' > f && cat <<-END > g\n# no comment, \\\nEOF\n\there\n\tEND", 8),
        Instruction("RUN", 'grep x <<< "word" || echo $((1 << 2))', 13),
        Instruction("ENV", "A=1", 14),
        Instruction("RUN", '["echo", "x"]', 15),
    ]


LINE = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=20)


@settings(max_examples=25)
@given(bodies=st.lists(st.lists(LINE.filter(lambda line: line != "EOF"), max_size=4), max_size=4))
def test_the_body_of_a_here_document_is_kept_as_it_is(bodies: list[list[str]]) -> None:
    whole = [["cat <<'EOF' > f", *body, "EOF"] for body in bodies]
    text = "\n\n".join("RUN " + "\n".join(lines) for lines in whole)
    assert [one.text for one in instructions(text)] == ["\n".join(lines) for lines in whole]


@pytest.mark.parametrize(
    ("command", "fetches"),
    [
        ("apt-get update && apt-get install -y bash", True),
        ("pip3 install pytest", True),
        ("cd /x && python3 -m pip install y", True),
        ("if true; then curl -O z; fi", True),
        ("mkdir -p /opt/pip && chmod 755 /opt/pip", False),
        ("echo 'then; curl x' > notes && true", False),
        ("cat <<EOF > script\napt-get update\nEOF", False),
        ("rm -rf /var/lib/apt/lists", False),
    ],
)
def test_what_fetches_is_told_from_what_only_names_it(command: str, fetches: bool) -> None:
    assert installs(command) is fetches


def test_variables() -> None:
    env = {"HOME": "/home", "EMPTY": ""}
    assert (
        expanded(r"$HOME/${HOME}x/$NONE/${NONE:-y}/${EMPTY:-z}/${HOME:+w}/\$HOME", env) == "/home//homex//y/z/w/$HOME"
    )
    assert pairs('A=1 B="two words" C=$HOME', env) == {"A": "1", "B": "two words", "C": "/home"}
    assert pairs("A the old form", env) == {"A": "the old form"}
    assert pairs("ONLY_DECLARED", env) == {}
