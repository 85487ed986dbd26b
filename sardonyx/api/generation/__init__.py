"""Text from decoder models, token by token."""
