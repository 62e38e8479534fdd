"""Reports for people: plots, and HTML pages that need nothing but themselves."""
