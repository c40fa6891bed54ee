"""SQLite databases over volumes."""
