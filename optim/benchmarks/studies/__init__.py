"""What studies compute; their suites, which ask for it and record it, are in `optim.benchmarks.suites`."""
