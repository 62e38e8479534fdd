"""What the parameter-server kernels are measured on and beside: cases, other means of the same work, traps, the memory's speed."""
