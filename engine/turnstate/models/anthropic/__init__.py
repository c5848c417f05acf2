"""Anthropic Messages, and the servers that speak it."""

PROTOCOL = "anthropic_messages"
"""The key under which a part's ``provider`` holds what this protocol needs back."""
