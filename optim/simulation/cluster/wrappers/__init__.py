"""Wrappers around any policy: the lessons of the Philly study (Jeon et al., ATC 2019, section 6), one a file."""
