"""Shows that nothing is lost when processes die: starts the real service, kills it everywhere, and counts.

`python -m chaos` runs all scenarios (`make chaos`). Nothing of this is imported by the service.
"""
