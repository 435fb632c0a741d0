"""Making room in a prompt: whether, when and how far to compact, and the strategies and last stages of it."""
