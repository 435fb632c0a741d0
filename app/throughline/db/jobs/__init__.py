"""Side jobs: their queue, who takes them, and retention."""
