"""Shared code of interfaces whose clients send the messages of a chat: OpenAI's, AG-UI, the AI SDK's, LangGraph's."""
