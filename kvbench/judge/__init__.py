"""Saved measurements in, a verdict out. Pure."""
