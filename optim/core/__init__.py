"""What every problem shares: solutions, certificates, statuses, stopping rules, the registry, errors.

No word of any one problem belongs here.
"""
