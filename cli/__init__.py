"""The `budwood` command."""
