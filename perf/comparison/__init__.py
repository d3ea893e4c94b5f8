"""Systems side by side: opened, found to compute the same, and measured turn and turn about."""
