"""Trainers: what learns from logs, and what is learnt."""
