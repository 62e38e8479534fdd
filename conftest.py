"""Keep pytest from collecting the package twice through the links at the top of the repository."""

collect_ignore = ["models", "solvers", "kernels", "benchmarks"]
