"""Bounds by which experiments call heads and pairs what they are, without intervals over prompts."""

from count01_lens.heads.thresholds import THRESHOLDS

INTERACTION = THRESHOLDS.mean
AGAINST = -0.02  # a Shapley value of a head that works against the rest
