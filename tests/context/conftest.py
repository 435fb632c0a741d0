"""Profiles of the engine's properties: `--hypothesis-profile=fuzz` runs many more histories."""

from hypothesis import settings

settings.register_profile("fuzz", max_examples=5000, deadline=None, print_blob=True)
