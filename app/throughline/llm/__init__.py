"""Model providers: chat models, embedding models, token counters, error classification and the offline model."""
