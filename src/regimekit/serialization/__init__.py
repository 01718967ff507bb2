"""Snapshots: the state of a model as bytes, and the validation of bytes from any source."""
