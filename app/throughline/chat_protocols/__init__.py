"""What the interfaces share whose clients bring the messages of a chat: OpenAI's, and other protocols of front ends."""
