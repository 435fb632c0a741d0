"""A module that ends the program as it is imported."""

import sys

sys.exit(3)
