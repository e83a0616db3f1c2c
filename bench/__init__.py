"""Benchmarks: interleaved rounds in one run, compared by medians and ratios, because absolute figures vary by machine."""
