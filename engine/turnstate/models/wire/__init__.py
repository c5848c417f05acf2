"""What the adapters share, whatever protocol they speak: HTTP, events, JSON values, settings, errors."""
