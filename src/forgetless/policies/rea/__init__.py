"""The policy `rea`: user words stay, each reply enters raw, compressed or not at all (REA, episodic memory)."""
