"""Making a view smaller step by step: prunes, strategies, and the last stages."""
