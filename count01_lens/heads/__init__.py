"""Measuring heads, free of any task: runners, probes, metrics, groups, games, analysis."""
