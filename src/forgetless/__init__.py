"""Keep LLM conversations and agents inside a token budget without losing what carries the work."""

from forgetless.compaction import compact
from forgetless.errors import (
    BudgetError,
    ConfigError,
    ForgetlessError,
    MissingExtra,
    ModelError,
    RequestError,
    StoreError,
)
from forgetless.intake import Compaction
from forgetless.messages import Message
from forgetless.policies.base import Context, Entry, Policy, Rewriter, Scorer
from forgetless.registry import load_policy
from forgetless.session import Session
from forgetless.units import Unit

__all__ = [
    "BudgetError",
    "Compaction",
    "ConfigError",
    "Context",
    "Entry",
    "ForgetlessError",
    "Message",
    "MissingExtra",
    "ModelError",
    "Policy",
    "RequestError",
    "Rewriter",
    "Scorer",
    "Session",
    "StoreError",
    "Unit",
    "compact",
    "load_policy",
]
