"""The best schedules of jobs at given prices.

The exact dynamic programme over a job's work, on classes of equal servers with full capacity and on single
servers with what is left of them; the tables of jobs and rows that it reads; the pools of schedules that it
fills; and the dual points, proofs of an upper bound, that it gives.
"""
