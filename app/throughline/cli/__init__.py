"""The command-line interface: the commands of `throughline`, the chat, and their HTTP client."""
