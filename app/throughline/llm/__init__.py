"""Model providers: chat models, token counters, the error classifier and the offline model."""
