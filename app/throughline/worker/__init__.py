"""The background door: claims runs and turns them."""
