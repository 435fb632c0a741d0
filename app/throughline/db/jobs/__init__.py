"""Side jobs, which are work besides turns: their queue and their kinds."""
