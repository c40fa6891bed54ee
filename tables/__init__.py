"""Tables: a SQLite table as rows over any pages: columns, splits, Arrow batches, and what changed (changes/).

Nothing here knows of Spark, or of where pages come from. It needs NumPy and Arrow: `pip install "budwood[tables]"`.
"""
