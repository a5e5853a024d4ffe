"""Names of policies and dialects, and the way from a name to the thing; nothing loads until it is named.

Other packages add policies through the entry-point group `forgetless.policies`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import Any

from forgetless.errors import ConfigError

__all__ = [
    "DEFAULT",
    "DIALECTS",
    "ENVIRONMENTS",
    "LASTING",
    "MODELS",
    "POLICIES",
    "RECOGNISER",
    "RECOGNISERS",
    "REWRITERS",
    "calls_model",
    "load_dialect",
    "load_environment",
    "load_policy",
    "load_recogniser",
    "load_rewriter",
    "options_of",
    "policy_names",
]

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "acon": "forgetless.policies.summary.policy:acon",
        "bm25": "forgetless.policies.bm25:bm25",
        "decay": "forgetless.policies.decay:decay",
        "dense": "forgetless.policies.dense:dense",
        "fifo": "forgetless.policies.fifo:Fifo",
        "full": "forgetless.policies.full:Full",
        "length": "forgetless.policies.length:length",
        "llmlingua2": "forgetless.policies.llmlingua2:llmlingua2",
        "lre": "forgetless.policies.lre.policy:lre",
        "masking": "forgetless.policies.masking:Masking",
        "rea": "forgetless.policies.rea.policy:rea",
        "recent": "forgetless.policies.recent:Recent",
        "relevance": "forgetless.policies.relevance.policy:relevance",
        "salience": "forgetless.policies.salience:salience",
        "summary": "forgetless.policies.summary.policy:summary",
    }
)

REWRITERS: Mapping[str, str] = MappingProxyType({"ccm": "forgetless.policies.ccm.policy:ccm"})
"""Policies whose model writes a memory of its own: one step before a model call, one after it."""

DIALECTS: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": "forgetless.dialects.anthropic:Anthropic",
        "chat": "forgetless.dialects.chat:Chat",
        "responses": "forgetless.dialects.responses:Responses",
    }
)

ENVIRONMENTS: Mapping[str, str] = MappingProxyType(
    {
        "appworld": "forgetless.environments.appworld:AppWorld",
        "recall": "forgetless.environments.recall:Recall",
        "terminal": "forgetless.environments.terminal:Terminal",
        "webshop": "forgetless.environments.webshop.shop:Webshop",
    }
)

RECOGNISERS: Mapping[str, str] = MappingProxyType(
    {
        "learned": "forgetless.instructions.learned:Learned",
        "rules": "forgetless.instructions.rules:Rules",
    }
)

MODELS = frozenset(("acon", "dense", "llmlingua2", "summary"))
"""Those of `POLICIES` that call a model, which has to be named or installed."""

DEFAULT = "relevance"
"""The policy where none is named and the question is known."""

LASTING = "lre"
"""The same for a session, whose choice has to serve questions that are still to come."""

RECOGNISER = "learned"
"""The recogniser of standing instructions in the proxy and on the command line; in the library it has to be named."""

GROUP = "forgetless.policies"


def policy_names(*, models: bool = False) -> list[str]:
    """The policies that can be named: ours, and those that installed packages offer.

    Args:
        models: also those that call a model, which has to be named or installed.
    """
    return sorted({name for name in POLICIES if models or name not in MODELS} | set(_offered()))


def calls_model(policy: str, options: Mapping[str, Any]) -> bool:
    """Whether a policy calls a model with these options, for which others should not have to wait."""
    return (
        policy in MODELS
        or options.get("compress", "sentences") != "sentences"
        or str(options.get("near")).startswith(("dense", "latent"))
    )


def options_of(given: Iterable[str]) -> dict[str, Any]:
    """Options from NAME=VALUE, as a command line has them, each value as JSON where it is some.

    Raises:
        ConfigError: one is not of this form.
    """
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"an option is NAME=VALUE, not {text!r}")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def load_policy(policy: Any, *, counter: Any = None, **options: Any) -> Any:
    """A policy by name; one made before is handed back.

    Args:
        policy: one of `policy_names(models=True)`, or a policy, which then has its options already.
        counter: handed to policies that write text of their own, which has to be counted.
        options: the policy's own options.

    Raises:
        ConfigError: unknown name, or an option that the policy does not have.
    """
    if not isinstance(policy, str):
        if options:
            raise ConfigError(f"{', '.join(map(repr, options))}: options go with a policy's name, not with a policy")
        if not hasattr(policy, "lazy") or isinstance(policy, type):
            raise ConfigError(f"{policy!r} is no policy: wrap a scorer in Select, from forgetless.policies.select")
        # What a policy writes must be counted as the request is counted.
        return replace(policy, counter=counter) if counter is not None and hasattr(policy, "counter") else policy
    target = POLICIES.get(policy) or _offered().get(policy)
    if target is None and policy in REWRITERS:
        raise ConfigError(f"{policy!r} needs its model's replies too: load it by load_rewriter, or use it in the proxy")
    if target is None:
        raise ConfigError(_unknown("policy", policy, policy_names(models=True)))
    factory = _resolve(target)
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known:
            raise ConfigError(_unknown(f"option of policy {policy!r}:", option, [k for k in known if k != "counter"]))
    if counter is not None and "counter" in known:
        options["counter"] = counter
    return factory(**options)


def load_dialect(name: str) -> Any:
    """A dialect by name.

    Raises:
        ConfigError: unknown name.
    """
    if not isinstance(name, str) or name not in DIALECTS:
        raise ConfigError(_unknown("dialect", str(name), sorted(DIALECTS)))
    return _resolve(DIALECTS[name])()


def load_rewriter(name: str, **options: Any) -> Any:
    """A rewriter by name.

    Raises:
        ConfigError: unknown name, or an option that the rewriter does not have.
    """
    return _made("rewriter", REWRITERS, name, options)


def load_environment(name: str, **options: Any) -> Any:
    """An environment by name.

    Raises:
        ConfigError: unknown name, or an option that the environment does not have.
    """
    return _made("environment", ENVIRONMENTS, name, options)


def _made(kind: str, table: Mapping[str, str], name: str, options: Mapping[str, Any]) -> Any:
    if name not in table:
        raise ConfigError(_unknown(kind, name, sorted(table)))
    factory = _resolve(table[name])
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known:
            raise ConfigError(_unknown(f"option of {kind} {name!r}:", option, [k for k in known if k != "counter"]))
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise ConfigError(f"{kind} {name!r} needs {option!r}")
    return factory(**options)


def load_recogniser(name: str) -> Any:
    """A recogniser of standing instructions by name.

    Raises:
        ConfigError: unknown name.
    """
    if name not in RECOGNISERS:
        raise ConfigError(_unknown("recogniser", name, sorted(RECOGNISERS)))
    return _resolve(RECOGNISERS[name])()


def _resolve(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _offered() -> dict[str, str]:
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _unknown(kind: str, name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
    return f"unknown {kind} {name!r}; {hint}"
