"""The `optim` command: one module a sub-command, no logic; what they do lives in the library."""
