"""The best schedules of jobs at given prices.

The exact dynamic programme over a job's work, on classes of equal empty servers and on single servers with
residual capacity; its tables of jobs and rows; the resulting pools of schedules; and the dual points, which
prove an upper bound.
"""
