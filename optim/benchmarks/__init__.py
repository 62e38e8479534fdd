"""Suites, runner, records, comparison and report of the solver benchmark."""

if __name__ != "optim.benchmarks":
    raise ImportError("import this package as optim.benchmarks: the folder benchmarks/ at the top is a link for readers")
