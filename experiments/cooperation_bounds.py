"""Bounds by which experiments name what heads and pairs do, without intervals over prompts."""

from count01_lens.heads.thresholds import THRESHOLDS

INTERACTION = THRESHOLDS.mean
AGAINST = -0.02  # a Shapley value of a head that works against the rest
