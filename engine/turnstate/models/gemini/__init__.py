"""Google Gemini, and the servers that speak its protocol."""

PROTOCOL = "gemini"
"""The key under which a part's ``provider`` holds what this protocol needs back: the other fields of the part."""
