"""Worlds that policies run in: the engine owns time, money and progress, a policy sees what its real counterpart would."""
