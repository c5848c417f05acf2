"""OpenAI Responses, and the servers that speak it."""

PROTOCOL = "openai_responses"
"""The key under which a part's ``provider`` holds what this protocol needs back."""
