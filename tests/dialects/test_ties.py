"""Messages that a provider's or a client's habits tie together, and that must stay together."""

from __future__ import annotations

from typing import Any

from forgetless import compact

FILLER = "word " * 400


def test_a_system_message_in_mid_conversation_keeps_the_messages_that_anthropic_wants_beside_it() -> None:
    messages = [
        {"role": "user", "content": "first " + FILLER},
        {"role": "assistant", "content": "fine"},
        {"role": "user", "content": "old"},
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "new?"},
    ]
    for policy in ("bm25", "fifo", "recent", "masking"):
        done = compact(messages, dialect="anthropic", policy=policy, budget=100)
        assert done.messages == messages[2:]


def test_the_thinking_that_opens_an_open_turn_stays() -> None:
    def step(n: int, *thinking: Any) -> list[Any]:
        use = {"type": "tool_use", "id": f"t{n}", "name": "r", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"{n} " * 100}
        return [{"role": "assistant", "content": [*thinking, use]}, {"role": "user", "content": [result]}]

    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = [{"role": "user", "content": "fix it"}, *step(1, thought), *step(2), *step(3), *step(4)]
    for policy in ("bm25", "fifo", "recent"):
        done = compact(messages, policy=policy, budget=500)
        assert done.messages[1]["content"][0] == thought
        assert done.messages[-2:] == messages[-2:]
        assert len(done.messages) < len(messages)
        told = compact(
            [*messages, {"role": "system", "content": "Hurry."}], policy=policy, dialect="anthropic", budget=500
        )
        assert told.messages[1]["content"][0] == thought
    every = [{"role": "user", "content": "fix it"}, *[m for n in range(1, 5) for m in step(n, thought)]]
    assert compact(every, policy="fifo", budget=500).messages[1] != every[1]


def test_an_output_whose_call_the_provider_holds_stays() -> None:
    answer = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    items = [answer, {"role": "user", "content": "old " + FILLER}, {"role": "assistant", "content": "x"}]
    body = {
        "model": "gpt-5",
        "previous_response_id": "resp_1",
        "input": [*items, {"role": "user", "content": "next"}],
    }
    done = compact(body, budget=100)
    assert answer in done.messages
    assert done.tokens <= 100


def test_a_server_tool_and_its_late_result_are_one_unit() -> None:
    use = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "q"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []}
    paused = [{"role": "assistant", "content": [{"type": "text", "text": "Searching " * 60}, use]}]
    resumed = [{"role": "assistant", "content": [result, {"type": "text", "text": "Found."}]}]
    start, end = {"role": "user", "content": "find it"}, {"role": "user", "content": "thanks"}
    for policy in ("bm25", "fifo", "recent", "masking"):
        done = compact([start, *paused, *resumed, end], dialect="anthropic", policy=policy, budget=90)
        assert done.messages in ([start, end], [end])
        waiting = compact([start, *paused], dialect="anthropic", policy=policy, budget=1000)
        assert waiting.ledger[-1].messages == (1,)


def test_the_task_stays_when_a_client_puts_reminders_beside_results() -> None:
    messages: list[Any] = [{"role": "user", "content": "old " + FILLER}, {"role": "assistant", "content": "ok"}]
    messages.append({"role": "user", "content": "TASK: mend the build"})
    for n in range(12):
        use = {"type": "tool_use", "id": f"t{n}", "name": "run", "input": {}}
        beside = {"type": "text", "text": f"<system-reminder>note {n}</system-reminder>"}
        answer = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"line {n} " * 20}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer, beside]}]
    for policy in ("bm25", "fifo", "recent", "masking"):
        done = compact(messages, policy=policy, budget=300)
        assert {"role": "user", "content": "TASK: mend the build"} in done.messages
        assert done.messages[-1] == messages[-1]
