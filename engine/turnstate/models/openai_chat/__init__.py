"""OpenAI Chat Completions, and the many servers that speak it."""

PROTOCOL = "openai_chat"
"""The key under which a part's ``provider`` holds what this protocol needs back."""
