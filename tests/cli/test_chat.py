"""`forgetless chat`: what is sent, what is shown, and what a command or an error does to the conversation."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from rich.console import Console
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from cases import quarter
from forgetless.cli.chat import Talk, most, visible
from forgetless.errors import ConfigError, ModelError
from forgetless.models.scripted import Scripted
from forgetless.tokens import Counter
from live import serving


class Counted(Scripted):
    """Four characters a token."""

    counter = Counter(quarter)


def talk(model: Scripted, *lines: str, budget: int = 400, **options: Any) -> tuple[Talk, str]:
    shown = io.StringIO()
    console = Console(file=shown, width=200, markup=False, highlight=False)
    made = Talk(model, console, budget, **options)
    made.run(iter(lines))
    return made, shown.getvalue()


def test_it_streams_the_reply_and_says_what_was_sent() -> None:
    model = Counted(lambda body: f"You said {body['messages'][-1]['content']}.")
    made, shown = talk(model, "one", "", "two", system="Be kind.", policy="recent")
    assert shown.splitlines()[0].startswith("scripted, policy recent, budget 400")
    assert "You said one.\n[" in shown
    assert "You said two.\n[#" in shown
    sent = [request["messages"] for request in model.requests]
    assert [len(messages) for messages in sent] == [2, 4]
    assert sent[1][:2] == sent[0]
    assert [m["content"] for m in made.messages] == ["Be kind.", "one", "You said one.", "two", "You said two."]
    assert "sent 11 of 11 tokens, budget 400; 2 messages kept, 0 dropped; 0 tokens reused" in shown
    assert "4 messages kept, 0 dropped; 11 tokens reused" in shown


def test_over_the_budget_messages_leave_and_the_ledger_says_which() -> None:
    model = Counted(lambda body: "word " * 40)
    made, shown = talk(model, *(f"tell me {n}" for n in range(14)), "/ledger", policy="fifo")
    assert " 0 dropped" in shown
    *_, last = (line for line in shown.splitlines() if "dropped" in line)
    assert " 0 dropped" not in last
    assert len(made.messages) == 28
    rows = [line for line in shown.splitlines() if line.startswith("│")]
    assert len(rows) == 27, "one for each message of the last request"
    assert "omitted" in rows[0]
    assert "over_budget" in rows[0]
    assert "last_user" in rows[-1]
    assert "tell me 13" in rows[-1]
    assert all(m in made.messages for m in model.requests[-1]["messages"])


def test_pins_stay_until_they_are_unpinned() -> None:
    def asked(*commands: str) -> list[str]:
        model = Counted(lambda body: "word " * 40)
        talk(model, "my name is Ada", "/pin 0", *(f"tell me {n}" for n in range(8)), *commands, "who?", policy="fifo")
        return [m["content"] for m in model.requests[-1]["messages"]]

    assert "my name is Ada" in asked()
    assert "my name is Ada" in asked("/policy recent")
    assert "my name is Ada" not in asked("/unpin 0", "/budget 300")
    made, shown = talk(Counted(["hello there"]), "hi", "/pin")
    assert made.pins == {1}
    assert "pinned message 1: hello there" in shown


def test_instructions_that_were_recognised_are_listed_and_dropped() -> None:
    rule = "From now on, always answer in French."
    lines = ["hello", "/pins", rule, "/pin 0", "/pins", "/unpin 2", "/pins", "/pin 2", "/unpin 0", "/pins"]
    _, shown = talk(Counted(lambda body: "word " * 5), *lines)
    told = [line for line in shown.splitlines() if "instruction" in line or "pinned" in line or "may go" in line]
    assert told == [
        "nothing is pinned, and no instruction was recognised",
        "pinned message 0: hello",
        "0, pinned: hello",
        f"2, instruction: {rule}",
        "message 2 may go",
        "0, pinned: hello",
        f"pinned message 2: {rule}",
        "message 0 may go",
        f"2, pinned: {rule}",
        f"2, instruction: {rule}",
    ]


def test_an_instruction_stays_until_it_is_dropped() -> None:
    def asked(*commands: str) -> list[str]:
        model = Counted(lambda body: "word " * 40)
        rule = "From now on, always answer in French."
        talk(model, rule, *(f"tell me {n}" for n in range(8)), *commands, "/budget 300", "who?", policy="fifo")
        return [m["content"] for m in model.requests[-1]["messages"]]

    assert "From now on, always answer in French." in asked()
    assert "From now on, always answer in French." not in asked("/unpin 0")


def test_an_error_is_one_line_and_the_turn_is_taken_back() -> None:
    class Breaking(Counted):
        def stream(self, body: Any) -> Any:
            for chunk in super().stream(body):
                yield chunk
                if chunk["choices"] and chunk["choices"][0]["delta"].get("content") == "half":
                    raise ModelError("the line is dead")

    model = Breaking([ModelError("the server is down", status=503), "half of it", "", "fine"])
    made, shown = talk(model, "one", "two", "word " * 500, "three", "four")
    for told in ("the server is down", "the line is dead", "what must stay takes", "the model said nothing"):
        assert sum(told in line for line in shown.splitlines()) == 1
    assert [m["content"] for m in made.messages] == ["four", "fine"]
    assert [len(r["messages"]) for r in model.requests] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/ledgr", "did you mean '/ledger'"),
        ("/xyz", "try /help"),
        ("/ledger", "nothing was sent yet"),
        ("/pin", "nothing to pin"),
        ("/pin 3", "no message '3'"),
        ("/unpin", "not how /unpin is used"),
        ("/pin 1 2", "not how /pin is used"),
        ("/policy bm52", "did you mean 'bm25'"),
        ("/budget 0", "above 0 tokens, not 0"),
        ("/budget lots", "not 'lots'"),
        ("/help", "/unpin N"),
    ],
)
def test_commands_that_change_nothing(line: str, told: str) -> None:
    made, shown = talk(Counted([]), line, "/quit", "never said")
    assert told in shown
    assert (made.policy, made.budget, made.messages) == ("lre", 400, [])


def test_policy_and_budget_hold_from_here_on() -> None:
    model = Counted(lambda body: "word " * 40)
    lines = [f"tell me {n}" for n in range(6)]
    made, shown = talk(model, *lines, "/policy fifo", "/budget 100", "last", budget=10_000)
    assert (made.policy, made.budget) == ("fifo", 100)
    assert len(model.requests[-2]["messages"]) == 11
    assert len(model.requests[-1]["messages"]) < 4
    assert "budget 100 from here on" in shown


def test_the_budget_is_the_window_less_an_eighth() -> None:
    assert most(Scripted([], window=8192)) == 7168
    with pytest.raises(ConfigError, match="give a budget"):
        most(Scripted([]))


def test_what_a_model_sends_cannot_drive_the_terminal() -> None:
    evil = "a\x1b[31mred\x1b]0;title\x07\x9b2J\u202eb\r\nc\td \ud83d"
    made, shown = talk(Counted([evil, ModelError(f"bad {evil}")]), "hi", "/pin", "/ledger", "again")
    assert not set(shown) & set("\x1b\x07\x9b\u202e\r\ud83d")
    assert made.messages[1]["content"] == evil, "what it said is kept as it was"
    assert visible("familie 👨\u200d👩 é\n") == "familie 👨\u200d👩 é\n"


class Upstream:
    """Answers a first time, then goes on until its client has gone."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.speaking, self.gone = threading.Event(), threading.Event()

    async def handle(self, request: Request) -> Response:
        self.bodies.append(json.loads(await request.body()))
        return StreamingResponse(self.events(request, len(self.bodies)), media_type="text/event-stream")

    async def events(self, request: Request, number: int) -> AsyncIterator[bytes]:
        def chunk(text: str, finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
            return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

        yield chunk(f"reply {number} ")
        if number == 2:
            self.speaking.set()
            try:
                while not await request.is_disconnected():
                    yield b": on\n\n"
            finally:
                self.gone.set()
        yield chunk("ends", "stop") + b"data: [DONE]\n\n"


@pytest.fixture
def upstream() -> Iterator[tuple[str, Upstream]]:
    app = Upstream()
    with serving(Starlette(routes=[Route("/v1/chat/completions", app.handle, methods=["POST"])])) as url:
        yield url, app


def command(url: str, *args: str) -> list[str]:
    run = [sys.executable, "-c", "from forgetless.cli.main import run; run()", "chat", "--upstream", f"{url}/v1"]
    return [*run, "--model", "gpt-4o", *args]


def test_piped_through_a_real_process(upstream: tuple[str, Upstream]) -> None:
    lines = "hello wörld\n/ledger\n".encode() + b"/\xff"
    done = subprocess.run(command(upstream[0]), input=lines, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode()
    assert shown.startswith("gpt-4o, policy lre, budget 112,000")
    assert "reply 1 ends\n[" in shown
    assert "hello wörld" in shown
    assert "unknown command" in shown.splitlines()[-1]
    assert upstream[1].bodies[0]["messages"] == [{"role": "user", "content": "hello wörld"}]


def test_ctrl_c_stops_a_reply_and_ctrl_d_ends(upstream: tuple[str, Upstream]) -> None:
    url, app = upstream
    with subprocess.Popen(command(url, "--budget", "500"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        seen = b""
        while b"reply 2" not in seen:
            seen += process.stdout.read1()
        assert app.speaking.is_set()
        for _ in range(5):  # Python may lose one that comes while it runs a destructor
            process.send_signal(signal.SIGINT)
            if app.gone.wait(3):
                break
        else:
            process.kill()
        assert app.gone.is_set()
        process.stdin.write(b"three\n")
        process.stdin.close()
        assert b"reply 3 ends" in process.stdout.read()
        assert process.wait(10) == 0
    assert [m["content"] for m in app.bodies[2]["messages"]] == ["one", "reply 1 ends", "two", "reply 2 ", "three"]


def test_wrong_options_are_one_line(upstream: tuple[str, Upstream]) -> None:
    for args, told in ((["--policy", "bm52"], b"did you mean 'bm25'"), (["--budget", "-1"], b"above 0")):
        done = subprocess.run(command(upstream[0], *args), input=b"", capture_output=True, check=False, timeout=60)
        assert done.returncode == 2
        assert told in done.stderr
        assert done.stderr.count(b"\n") == 1
