"""The words of the service: values every layer above shares. No I/O, no clock, no randomness."""
