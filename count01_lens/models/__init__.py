"""HookedTransformers: made from a config, written by hand, hooked, kept in files."""
