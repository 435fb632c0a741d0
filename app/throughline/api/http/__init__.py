"""What any HTTP dialect needs: serving, limits, bodies, keys, errors, streams."""
