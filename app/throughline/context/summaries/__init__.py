"""Text of summaries: requests to a summary model, checks of its answers, and facts that are kept verbatim."""
