"""A cluster of GPUs, event by event: policies decide which jobs run, the engine owns time, places and progress."""
