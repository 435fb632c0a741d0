"""The service's domain types: values that every layer above shares. No I/O, no clock, no randomness."""
