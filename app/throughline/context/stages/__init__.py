"""Stages that make a view smaller: pruning, the strategies, and the last stages before a prompt is refused."""
