"""Policies that plan: array views in, an assignment of jobs to GPUs out; the engine owns time, progress and the rules."""
