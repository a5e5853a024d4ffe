"""LRE, learned relevance eviction: features of units, a scorer of two kilobytes, and the policy `lre` on top of it."""
