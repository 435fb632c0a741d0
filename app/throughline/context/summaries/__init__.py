"""What a summariser is asked and what its answer has to be: transcripts, stretches, checks, and facts that are kept."""
