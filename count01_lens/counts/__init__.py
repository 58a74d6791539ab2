"""Exact forms of a model over counts of tokens: compact, closed form, tables, verification."""
