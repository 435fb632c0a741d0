"""Conversations that people have elsewhere: exports of ChatGPT and Claude, and LangGraph's threads, as sessions."""
