"""Tools agents may call, and the box that runs them."""
