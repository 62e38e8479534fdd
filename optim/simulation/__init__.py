"""Simulations of policies: the engine tracks time, money and progress; a policy has the information of its real counterpart."""
