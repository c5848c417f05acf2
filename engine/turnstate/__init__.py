"""Run LLM agent turns that survive a crash."""
