"""Experiments: each file measures one thing with the library and writes its numbers."""
