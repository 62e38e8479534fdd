"""Admission and elastic placement of training jobs: data, formal programmes, checker."""
