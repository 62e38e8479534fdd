"""Planning policies: they map array views to an assignment of GPUs.

The engine tracks time and progress, and checks the rules.
"""
