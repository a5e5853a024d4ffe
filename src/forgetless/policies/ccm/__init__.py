"""CCM, continuous context management: a model that writes its memory anew at every turn."""
