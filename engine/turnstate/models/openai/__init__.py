"""What Chat Completions and Responses share: where the server is, and how usage is told."""
