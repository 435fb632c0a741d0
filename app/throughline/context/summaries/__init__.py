"""What a summariser is asked and what its answer has to be: transcripts, segments, checks, and facts that are kept."""
