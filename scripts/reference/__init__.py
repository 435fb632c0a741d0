"""Maker of the reference pages from the code: `make reference` writes them, and a test compares them.

Each page keeps its text by hand. What is made stands between two comments, by the name of the part.
"""
