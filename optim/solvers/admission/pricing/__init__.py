"""The best schedules of jobs at given prices.

The exact dynamic programme over a job's work, on classes of identical empty servers and on single servers with residual
capacity; and pricing of many jobs at once, by a worker pool or on an accelerator.
"""
