"""Measured, not claimed: ratios of one run, interleaved, medians. Absolute figures depend on the machine."""
