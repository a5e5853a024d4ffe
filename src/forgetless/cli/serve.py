"""`forgetless serve`: the proxy."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from forgetless.errors import ConfigError
from forgetless.proxy.metrics import FOLDER
from forgetless.registry import DEFAULT, options_of

__all__ = ["serve"]

GRACE = 30
"""Seconds that requests under way have when the proxy is stopped."""

MOST_AT_ONCE = 10_000
"""Connections at once, above which the answer is 503."""


def serve(
    *,
    upstream: str | None = None,
    policy: str | None = None,
    scorer: Path | None = None,
    option: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    budget: int | None = None,
    host: str = "127.0.0.1",
    port: int = 8787,
    store: str | None = None,
    contents: bool | None = None,
    keep_days: float | None = None,
    config: Path | None = None,
    shadow: bool | None = None,
    strict: bool | None = None,
    recall: bool | None = None,
    truncate: bool | None = None,
    instructions: str | None = None,
    remind: bool | None = None,
    every_turn: bool | None = None,
    workers: int = 1,
) -> None:
    """Serve a provider's API; point your client's base_url at it.

    Args:
        upstream: the provider's base address, or `embedded` for the small model in this process.
        policy: what decides what stays; by default lre, or with --every-turn relevance. With ccm the model writes a
            memory of its own at every turn, which takes the history's place.
        scorer: weights for the policy, as `forgetless train` makes them. When the file is replaced, the conversations
            that begin from then on use the new ones.
        option: NAME=VALUE, an option of the policy; may be repeated.
        budget: most tokens of a request; by default the window of the request's model less its reply.
        host: address to listen on; by default this machine only.
        port: port to listen on.
        store: where conversations are kept: a file, postgresql://..., memory or none; by default a file of yours.
        contents: keep what was said; --no-contents keeps decisions and numbers only.
        keep_days: remove conversations that were not used for so many days.
        config: a TOML file with any of these settings but host, port and workers; what is given here wins.
        shadow: forward everything unchanged, and record what would have been sent and saved.
        strict: answer 400 when what must stay is over the budget; otherwise that much is sent.
        recall: offer the model a tool that reads back what was left out.
        instructions: what recognises the user's standing instructions, which then stay word for word: learned, rules,
            or none.
        remind: say them again beside the newest question of each request, in place of keeping them where they were
            given; by default only the policy rea does.
        truncate: cut inside long texts where what must stay is over the budget.
        every_turn: choose anew for every request over the budget: finds what the newest question needs, and loses
            the provider's prompt cache.
        workers: processes.
    """
    from forgetless.proxy.settings import Settings

    options = options_of(option) | ({"scorer": str(scorer.absolute())} if scorer is not None else {})
    given: dict[str, Any] = {
        "upstream": upstream,
        "policy": policy,
        "budget": budget,
        "store": store,
        "contents": contents,
        "keep_days": keep_days,
        "shadow": shadow,
        "strict": strict,
        "recall": recall,
        "truncate": truncate,
        "instructions": instructions,
        "remind": remind,
        "every_turn": every_turn,
    }
    told = Settings.read(config) if config is not None else {}
    told |= {name: value for name, value in given.items() if value is not None}
    if told.get("every_turn"):
        told.setdefault("policy", DEFAULT)  # the question is known each time
    told["options"] = told.get("options", {}) | options
    if "upstream" not in told:
        raise ConfigError("--upstream is missing: the provider's base address, or 'embedded'")
    settings = Settings(**told)
    if not 0 <= port < 2**16:
        raise ConfigError(f"a port is a number from 0 to 65535, not {port!r}")
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers!r}")
    if workers > 1 and settings.store in ("memory", "none"):
        raise ConfigError(f"{workers} workers need a store that they can share, not {settings.store!r}")
    if workers > 1 and settings.upstream == "embedded":
        raise ConfigError("the embedded model runs in one worker")
    _run(settings, host, port, workers)


def _run(settings: Any, host: str, port: int, workers: int) -> None:
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from forgetless.proxy.app import SETTINGS
    from forgetless.proxy.logs import logs
    from forgetless.stores.open import open_store

    open_store(settings.store, contents=settings.contents).close()  # fail here, with one line, and not in a worker
    logs()
    os.environ[SETTINGS] = settings.dumps()
    config = uvicorn.Config(
        "forgetless.proxy.app:app",
        factory=True,
        workers=workers,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=MOST_AT_ONCE,
    )
    server = uvicorn.Server(config)
    with _listen(host, port) as listener:
        upstream = re.sub(r"//[^/@]*@", "//", settings.upstream)  # which may hold a password
        print(f"forgetless: {_address(listener)}/v1 -> {upstream}, policy {settings.policy}", file=sys.stderr)
        if workers == 1:
            server.run(sockets=[listener])  # ends by the signal that stopped it: nothing that follows is run
            return
        with tempfile.TemporaryDirectory(prefix="forgetless-") as folder:
            os.environ[FOLDER] = folder
            Multiprocess(config, [listener]).run()


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. It says that it speaks TCP, without which asyncio leaves Nagle's delay on."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    listener.set_inheritable(True)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
