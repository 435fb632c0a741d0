"""Throughline: a self-hosted LangGraph agent service on PostgreSQL whose conversations can run for ever."""
