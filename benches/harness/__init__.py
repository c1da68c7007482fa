"""What the benchmarks share: building, load, samplers, costs, windows, statistics, reports."""
