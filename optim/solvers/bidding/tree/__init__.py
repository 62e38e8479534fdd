"""Branch and bound for ``cost - q work``: boxes, their relaxations, and the multipliers that prove a bound."""
