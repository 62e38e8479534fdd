"""Sources of instances: calibrated generators, public traces and the user's files."""
