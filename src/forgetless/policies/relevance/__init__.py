"""The policy `relevance`: LRE's features beside how well a unit and its neighbours match the question."""
