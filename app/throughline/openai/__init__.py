"""OpenAI's interface: its official clients work with the agents of this service unchanged."""
