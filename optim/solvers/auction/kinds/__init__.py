"""Linear programmes over kinds of bundles, and the tree that branches on their numbers."""
