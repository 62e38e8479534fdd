"""The least cost of a job with a deadline over several zones."""
