"""Interventions as values: heads ablated, attention set by hand; and sweeps of them."""
