"""HOW it is solved: every solver of every problem, one a file."""

if __name__ != "optim.solvers":
    raise ImportError("import this package as optim.solvers: the folder solvers/ at the top is a link for readers")
