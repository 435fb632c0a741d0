"""Side jobs: their queue and their kinds."""
