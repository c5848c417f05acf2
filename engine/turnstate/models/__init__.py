"""Models: adapters to providers."""
