"""Problems: the data of each problem, its formal programmes and its checker."""

if __name__ != "optim.models":
    raise ImportError("import this package as optim.models: the folder models/ at the top is a link for readers")
