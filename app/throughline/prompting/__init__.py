"""Preparing a prompt: an agent made ready, a conversation loaded, the engine's plan, and what is told of all that."""
