"""The kinds of problems: what each error code means, for problem documents, their pages and the reference of errors.

A module for each subject, because the reference has a table for each; `all_kinds.py` joins them.
"""
