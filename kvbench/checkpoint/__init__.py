"""Checkpoints saved and models loaded: the probe `store.checkpoint`."""
