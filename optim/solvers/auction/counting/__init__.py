"""The relaxation in which only the number of GPUs counts."""
