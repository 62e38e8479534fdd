"""Code shared by all problems: solutions, certificates, statuses, stopping rules, the registry, errors.

Code specific to one problem does not belong here.
"""
