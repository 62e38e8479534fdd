"""What winners pay: both ends of each payment, the rule, and the solution that states them."""
