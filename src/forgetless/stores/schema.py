"""The tables of an SQL store, in words that each database fills in with its own types.

Foreign keys hold the tree together: a node has its parent and its content, a request its head and its base, and all
of them their conversation, with which they go. Each of these has an index, without which removing a conversation
would take the square of its length.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INBOX", "TABLES"]

TABLES: Final = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value {bytes} NOT NULL);
CREATE TABLE conversations (
  id {serial}, caller TEXT NOT NULL, name TEXT NOT NULL, created {float} NOT NULL, updated {float} NOT NULL,
  UNIQUE (caller, name)
);
CREATE TABLE contents (
  conversation BIGINT NOT NULL REFERENCES conversations ON DELETE CASCADE, hash {bytes} NOT NULL, wire {bytes},
  PRIMARY KEY (conversation, hash)
);
CREATE TABLE nodes (
  n {serial}, conversation BIGINT NOT NULL REFERENCES conversations ON DELETE CASCADE, caller TEXT NOT NULL,
  key {bytes} NOT NULL, parent {bytes}, role TEXT NOT NULL, tokens BIGINT NOT NULL, content {bytes},
  UNIQUE (conversation, key),
  FOREIGN KEY (conversation, parent) REFERENCES nodes (conversation, key),
  FOREIGN KEY (conversation, content) REFERENCES contents (conversation, hash)
);
CREATE INDEX nodes_caller ON nodes (caller, key);
CREATE INDEX nodes_parent ON nodes (conversation, parent);
CREATE INDEX nodes_content ON nodes (conversation, content);
CREATE TABLE requests (
  n {serial}, conversation BIGINT NOT NULL REFERENCES conversations ON DELETE CASCADE, caller TEXT NOT NULL,
  id TEXT NOT NULL, at {float} NOT NULL, dialect TEXT NOT NULL, model TEXT NOT NULL, policy TEXT NOT NULL,
  scorer TEXT NOT NULL, outcome TEXT NOT NULL, status BIGINT NOT NULL, budget BIGINT NOT NULL,
  tokens_before BIGINT NOT NULL, tokens_after BIGINT NOT NULL, reused_tokens BIGINT NOT NULL,
  input_tokens BIGINT, cached_tokens BIGINT, output_tokens BIGINT,
  head {bytes}, system {bytes} NOT NULL, base TEXT, kept BIGINT NOT NULL, length BIGINT NOT NULL, rows TEXT NOT NULL,
  UNIQUE (id, caller), UNIQUE (conversation, id),
  FOREIGN KEY (conversation, head) REFERENCES nodes (conversation, key),
  FOREIGN KEY (conversation, base) REFERENCES requests (conversation, id)
);
CREATE INDEX requests_at ON requests (conversation, at);
CREATE INDEX requests_head ON requests (conversation, head);
CREATE INDEX requests_base ON requests (conversation, base);
CREATE TABLE states (
  conversation BIGINT NOT NULL REFERENCES conversations ON DELETE CASCADE, key {bytes} NOT NULL,
  state {bytes} NOT NULL, PRIMARY KEY (conversation, key)
);
CREATE TABLE pins (
  conversation BIGINT NOT NULL REFERENCES conversations ON DELETE CASCADE, key {bytes} NOT NULL,
  PRIMARY KEY (conversation, key)
);
CREATE TABLE memories (
  conversation BIGINT NOT NULL REFERENCES conversations ON DELETE CASCADE, key {bytes} NOT NULL,
  memory {bytes} NOT NULL, PRIMARY KEY (conversation, key)
);
"""
"""`system` is a row of hashes of contents, 16 bytes each; `length` counts the rows of the whole ledger."""

INBOX: Final = """
CREATE TABLE inbox (n {serial}, done BIGINT NOT NULL, record {bytes} NOT NULL);
"""
"""A record is an exchange as msgpack; so many of its nodes stand in their places by now."""
