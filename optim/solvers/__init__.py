"""Solvers of all problems, one file per solver."""

if __name__ != "optim.solvers":
    raise ImportError("import this package as optim.solvers: the folder solvers/ at the top is a link for readers")
