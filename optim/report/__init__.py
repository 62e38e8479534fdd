"""Reports: plots and self-contained HTML pages."""
