"""The edge: a local store that commits at once and syncs when it can."""
