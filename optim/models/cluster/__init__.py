"""A cluster of GPUs and the jobs that share it: what a simulation plays, its log, and what a log and a bound prove."""
