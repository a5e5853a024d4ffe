"""The `forgetless` command: the app, and errors as one line and exit code 2."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError

from forgetless.errors import ForgetlessError

__all__ = ["app", "run"]

app = App(
    name="forgetless",
    help="Keep LLM conversations and agents inside a token budget without losing what carries the work.",
    version_flags=["--version"],
)
bench = App(name="bench", help="Measure policies; each command writes a results folder.")
app.command(bench)
sessions = App(name="sessions", help="Look up, take along or remove the conversations that a proxy has kept.")
app.command(sessions)
train = App(name="train", help="Learn from your own logs what must not be forgotten.")
app.command(train)

# Loaded when called, so that one command does not pay for another's libraries.
for parent, target, name, about in (
    (app, "forgetless.cli.compact:compact_file", "compact", "Bring a conversation within a token budget."),
    (app, "forgetless.cli.serve:serve", "serve", "Serve a provider's API within a token budget."),
    (app, "forgetless.cli.chat:chat", "chat", "Talk to a model within a token budget."),
    (sessions, "forgetless.cli.sessions:list_sessions", "list", "The conversations in a store."),
    (sessions, "forgetless.cli.sessions:show", "show", "One conversation, and the ledger of its newest request."),
    (sessions, "forgetless.cli.sessions:pin", "pin", "Have a message of a stored conversation stay."),
    (sessions, "forgetless.cli.sessions:unpin", "unpin", "Let a pinned message, or a standing instruction, go."),
    (sessions, "forgetless.cli.sessions:export", "export", "Conversations as JSON lines, a branch a line."),
    (sessions, "forgetless.cli.sessions:purge", "purge", "Remove conversations with all that belongs to them."),
    (train, "forgetless.cli.train:lre", "lre", "A scorer of two kilobytes, from logs, without labels."),
    (train, "forgetless.cli.train:relevance", "relevance", "The same for a scorer that looks at the question."),
    (train, "forgetless.cli.train_recognizer:recognizer", "recognizer", "Tells standing instructions from all else."),
    (train, "forgetless.cli.train_ccm:ccm_start", "ccm-start", "A tiny agent to begin from (experimental)."),
    (train, "forgetless.cli.train_ccm:ccm", "ccm", "An agent learns to rewrite its memory (experimental)."),
    (train, "forgetless.cli.train_latent:rea_latent", "rea-latent", "Replies as eight vectors, for REA."),
    (train, "forgetless.cli.train_rea:rea_thresholds", "rea-thresholds", "Where REA compresses and omits replies."),
    (bench, "forgetless.benchmarks.tasks.validity:validity", "validity", "Whether promises and providers' rules hold."),
    (bench, "forgetless.benchmarks.tasks.overhead:overhead", "overhead", "Time and memory beside other libraries."),
    (bench, "forgetless.benchmarks.tasks.retention:retention", "retention", "What is kept of what is needed later."),
    (bench, "forgetless.benchmarks.tasks.relevance:relevance", "relevance", "How well scorers tell what is needed."),
    (bench, "forgetless.benchmarks.tasks.recognizer:recognizer", "recognizer", "How standing instructions are told."),
    (bench, "forgetless.benchmarks.tasks.adherence:adherence", "adherence", "Whether a rule is kept to, turn by turn."),
    (bench, "forgetless.benchmarks.tasks.latent:latent", "latent", "What latent memory costs and keeps, by turn."),
    (bench, "forgetless.benchmarks.tasks.judge:judge", "judge", "What a judge thinks of replies under policies."),
    (bench, "forgetless.benchmarks.tasks.agent:agent", "agent", "How agents work under policies, at what cost."),
    (bench, "forgetless.benchmarks.tasks.training:training", "training", "What the parts of CCM's objective do."),
    (bench, "forgetless.benchmarks.tasks.terminal:terminal", "terminal", "Whether tasks in a shell are set up right."),
    (bench, "forgetless.benchmarks.tasks.state:state", "state", "What is left of instructions given in pieces."),
    (bench, "forgetless.benchmarks.tasks.replay:replay", "replay", "What policies cost over whole agent runs."),
    (bench, "forgetless.benchmarks.tasks.speed:speed", "speed", "How fast the scorer is, and one more unit."),
    (bench, "forgetless.benchmarks.tasks.proxy:proxy", "proxy", "What the proxy adds to requests and streams."),
    (bench, "forgetless.benchmarks.tasks.durability:durability", "durability", "What a killed proxy has kept."),
):
    parent.command(target, name=name, help=about)


def run() -> None:
    """Run the command line; an error of the user's or ours is one line on stderr and exit code 2."""
    try:
        app(exit_on_error=False, print_error=False)
    except (ForgetlessError, CycloptsError) as error:
        print(f"forgetless: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; closing keeps Python from complaining about it at exit
        raise SystemExit(1) from None
