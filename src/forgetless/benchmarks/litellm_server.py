"""LiteLLM's proxy in an environment of its own, for comparison."""

from __future__ import annotations

import secrets
from pathlib import Path

from forgetless.benchmarks.loopback import HOST, Server, listener
from forgetless.benchmarks.peers import environment

__all__ = ["MODEL", "PINS", "start"]

MODEL = "mock"
"""The model that its configuration knows."""

# What the server imports. LiteLLM's own extra `proxy` names packages that its package index does not always have.
PINS = (
    "litellm==1.110.2",
    "apscheduler==3.11.3",
    "backoff==2.2.1",
    "backports-zstd==1.8.0",
    "cryptography==50.0.2",
    "expression==5.8.0",
    "fastapi==0.165.0",
    "fastapi-sso==0.23.0",
    "httpx2==2.16.2",
    "mcp==2.3.0",
    "orjson==3.13.0",
    "pyjwt==2.15.1",
    "pynacl==1.6.2",
    "python-multipart==0.0.34",
    "pyyaml==6.0.4",
    "restrictedpython==8.5",
    "rich==15.0.0",
    "rq==3.0.0",
    "semver==3.1.2",
    "soundfile==0.14.0",
    "starlette==1.10.0",
    "tomlkit==0.15.2",
    "uvicorn==0.54.0",
    "uvloop==0.23.0",
    "websockets==15.0.1",
)

_CONFIG = """\
model_list:
  - model_name: {model}
    litellm_params:
      model: openai/{model}
      api_base: {upstream}/v1
      api_key: none
litellm_settings:
  num_retries: 0
  telemetry: false
"""

_RUN = "from litellm.proxy.proxy_cli import run_server; run_server()"


def start(upstream: str, folder: Path) -> tuple[Server, str]:
    """The proxy, without a database, and the key that it wants to see.

    Args:
        upstream: address of the provider, without `/v1`.
        folder: where its configuration is written.

    Raises:
        ConfigError: it cannot be installed, or does not start.
    """
    python = environment(PINS)
    config = folder / "litellm.yaml"
    config.write_text(_CONFIG.format(model=MODEL, upstream=upstream), encoding="utf-8")
    key = f"sk-{secrets.token_hex(16)}"
    with listener() as free:
        port = free.getsockname()[1]
    command = [str(python), "-c", _RUN, "--config", str(config), "--host", HOST, "--port", str(port)]
    told = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": key}
    return Server([*command, "--telemetry", "False"], env=told, address=f"http://{HOST}:{port}"), key
