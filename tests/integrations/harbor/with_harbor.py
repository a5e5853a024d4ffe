"""What needs Harbor in the same process: run by `test_harbor.py` in the environment that has it."""

import asyncio
import inspect
import json
import logging

import pytest
from harbor.agents.terminus_2.terminus_2 import Terminus2
from harbor.llms.base import BaseLLM, LLMResponse, OutputLengthExceededError
from harbor.llms.chat import Chat
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from forgetless.errors import BudgetError, ConfigError
from forgetless.integrations.harbor import CCMAgent, FullHistoryAgent, LocalEnvironment, LREAgent
from forgetless.integrations.harbor.model import KeptModel

AGENTS = [CCMAgent, LREAgent, FullHistoryAgent]


class Keeper:
    """Sends one message, and reads replies in capitals."""

    def __init__(self):
        self.note = {}

    def prepare(self, history):
        return [{"role": "user", "content": f"{len(history)} turns"}]

    def observe(self, reply, usage):
        self.note = {"was": reply}
        return reply.upper()


class Model(BaseLLM):
    """Says what it was asked with."""

    def __init__(self):
        super().__init__()
        self.asked = []

    async def call(self, prompt, **given):
        self.asked.append((prompt, given))
        return LLMResponse(content="seen", response_id="resp_1", reasoning_content="why")

    def get_model_context_limit(self):
        return 1_000

    def get_model_output_limit(self):
        return 100


@pytest.mark.parametrize("marks", [True, False])
def test_the_model_is_asked_with_what_the_keeper_makes(marks):
    model = Model()
    kept = KeptModel(model, Keeper(), marks=marks)
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    said = asyncio.run(kept.call("c", history, previous_response_id="resp_0", extra_body={"x": 1}))
    messages = {"messages": [{"role": "user", "content": "3 turns"}]} if marks else {}
    assert model.asked == [("3 turns", {"message_history": [], "extra_body": {"x": 1}, **messages})]
    assert (said.content, said.reasoning_content, said.response_id) == ("SEEN", "why", None)
    assert kept.notes == [{"was": "seen"}]
    assert (kept.get_model_context_limit(), kept.get_model_output_limit()) == (1_000, 100)
    kept.begin(Keeper())
    assert kept.notes == []


@pytest.mark.parametrize("agent", AGENTS)
def test_agents_are_terminus_2_and_say_so_when_an_option_is_wrong(agent, tmp_path):
    made = agent(tmp_path, "gpt-4.1", temperature=0.6, max_turns=50)
    assert isinstance(made, Terminus2)
    assert made.name().startswith("forgetless-")
    with pytest.raises(ConfigError, match="enable_summarize must be false"):
        agent(tmp_path, "gpt-4.1", enable_summarize=True)
    with pytest.raises(ValueError, match="Unknown option 'bugdet'"):
        agent(tmp_path, "gpt-4.1", bugdet=1)


def test_options_of_contexts_are_looked_at_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="unknown policy 'lr'; did you mean 'lre'"):
        LREAgent(tmp_path, "gpt-4.1", policy="lr")
    with pytest.raises(ConfigError, match="unknown option of policy 'bm25': 'k'"):
        LREAgent(tmp_path, "gpt-4.1", policy="bm25", policy_options={"k": 1})
    with pytest.raises(ConfigError, match="limit must be a whole number of tokens above 0"):
        CCMAgent(tmp_path, "gpt-4.1", limit=0)
    with pytest.raises(ConfigError, match="parser_name must be 'json'"):
        CCMAgent(tmp_path, "gpt-4.1", parser_name="xml")
    for agent in (CCMAgent, LREAgent):
        with pytest.raises(ConfigError, match="give a budget in tokens"):
            agent(tmp_path, "openai/mystery")
        agent(tmp_path, "openai/mystery", budget="16000")
        assert agent.options_model.model_json_schema()["properties"]["budget"]["description"].startswith("Most tokens")


@pytest.mark.parametrize(("model", "marks"), [("anthropic/claude-sonnet-4-6", True), ("openai/gpt-4.1", False)])
def test_the_first_message_is_parted_where_harbors_template_has_the_screen(tmp_path, model, marks):
    agent = CCMAgent(tmp_path, model)
    assert agent.marks is marks
    opened = agent._prompt_template.format(instruction="Tidy up.", terminal_state="root@host:/#")
    history = [{"role": "user", "content": opened}, {"role": "assistant", "content": "{}"}]
    keeper = agent._keeper()
    keeper.prepare(history[:1])
    keeper.observe('{"context_window": "kept"}', None)
    (sent,) = keeper.prepare([*history, {"role": "user", "content": "newest"}])
    text = sent["content"] if not marks else "\n\n".join(block["text"] for block in sent["content"])
    assert text.endswith("Tidy up.\n\nThe `context_window` that you wrote last:\n\nkept\n\nnewest")


def test_a_reply_that_was_cut_off_stays_in_sight_until_there_is_a_memory(tmp_path):
    class Cut(Model):
        async def call(self, prompt, message_history=(), **given):
            self.asked.append([*message_history, {"role": "user", "content": prompt}])
            if len(self.asked) == 1:
                raise OutputLengthExceededError("too long", truncated_response='{"context_window": "half a')
            return LLMResponse(content='{"context_window": "whole", "analysis": "a", "plan": "p", "commands": []}')

    agent, model = CCMAgent(tmp_path, "gpt-4.1"), Cut()
    agent._llm = KeptModel(model, agent._keeper())
    chat = Chat(agent._llm)
    said = asyncio.run(agent._query_llm(chat, "Task\n\nCurrent terminal state:\nroot@host:/#"))
    assert json.loads(said.content) == {"analysis": "a", "plan": "p", "commands": []}
    task, reply, told = model.asked[1]
    assert task["content"].endswith("Task\n\nCurrent terminal state:\nroot@host:/#")
    assert reply == {"role": "assistant", "content": '{"context_window": "half a'}
    assert told["content"].startswith("ERROR!!")
    asyncio.run(agent._query_llm(chat, "newest"))
    (last,) = model.asked[2]
    assert last["content"].endswith("Task\n\nThe `context_window` that you wrote last:\n\nwhole\n\nnewest")


def test_what_does_not_fit_is_an_error_with_the_numbers(tmp_path):
    agent = CCMAgent(tmp_path, "gpt-4.1", budget=100)
    with pytest.raises(BudgetError, match="the budget is 100"):
        asyncio.run(agent._query_llm(Chat(agent._llm), "word " * 200))


def test_a_second_run_knows_nothing_of_the_first(tmp_path):
    agent = CCMAgent(tmp_path, "gpt-4.1")
    agent._llm._keeper.memory = "of the first run"
    agent._llm.notes.append({})
    agent._reset_per_run_state()
    assert agent._llm._keeper.memory == ""
    assert agent._llm.notes == []


def environment(tmp_path, dockerfile):
    folder = tmp_path / "environment"
    folder.mkdir()
    if dockerfile:
        (folder / "Dockerfile").write_text(dockerfile)
    paths = TrialPaths(trial_dir=tmp_path / "trial")
    return LocalEnvironment(folder, "task", "task__env", paths, EnvironmentConfig(), logger=logging.getLogger("test"))


def test_an_environment_runs_commands_and_copies_files(tmp_path):
    made = environment(tmp_path, "FROM ubuntu:24.04\nRUN useradd -m ann && useradd -m ben\nWORKDIR /srv\nUSER ann\n")
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "tool.sh").write_text("echo ran")
    (source / "sub" / "tool.sh").chmod(0o755)

    async def all_of_it():
        await made.start(force_build=False)
        try:
            return await checked()
        finally:
            await made.stop(delete=True)

    async def checked():
        async def said(command, **how):
            done = await made.exec(command, **how)
            return done.return_code, done.stdout, done.stderr

        assert await said("pwd; whoami; cat; echo no >&2; exit 3") == (3, "/srv\nann\n", "no\n")
        assert await said("pwd; echo $COLOUR", cwd="/tmp", env={"COLOUR": "dark blue"}) == (0, "/tmp\ndark blue\n", "")
        assert await said("whoami", user="root") == (0, "root\n", "")
        assert await said("whoami; id -un", user="ben") == (0, "ben\nben\n", "")
        assert (await said("sleep 60 & sleep 60", timeout_sec=1))[0] == 124
        long = "x" * 300_000
        assert await said(f"printf %s {long} | wc -c") == (0, "300000\n", "")
        await made.upload_dir(source_dir=source, target_dir="/opt/new")
        assert await said("/opt/new/sub/tool.sh") == (0, "ran\n", "")
        await made.upload_file(source_path=source / "sub" / "tool.sh", target_path="/opt/other/name.sh")
        assert await said("cat /opt/other/name.sh") == (0, "echo ran", "")
        await said("mkdir out && mkfifo out/pipe && printf '\\377' > out/file", user="root")
        await made.download_dir(source_dir="/srv/out", target_dir=tmp_path / "got")
        assert {path.name for path in (tmp_path / "got").iterdir()} == {"file"}
        await made.download_file(source_path="/srv/out/file", target_path=tmp_path / "deep" / "one")
        assert (tmp_path / "deep" / "one").read_bytes() == b"\xff"
        with pytest.raises(RuntimeError, match="cat failed in the sandbox"):
            await made.download_file("/srv/nothing", tmp_path / "two")
        assert await made.is_dir("/srv/out")

    asyncio.run(all_of_it())
    with pytest.raises(ConfigError, match="has ended"):
        asyncio.run(made.exec("true"))


def test_an_environment_needs_a_dockerfile(tmp_path):
    with pytest.raises(FileNotFoundError, match="needs a Dockerfile"):
        environment(tmp_path, "")


def test_the_names_of_parameters_are_harbors():
    from harbor.environments.base import BaseEnvironment

    for name in ("start", "stop", "exec", "upload_file", "upload_dir", "download_file", "download_dir"):
        ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (LocalEnvironment, BaseEnvironment))
        assert list(ours.parameters) == list(theirs.parameters)
