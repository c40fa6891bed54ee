"""Source: Spark's data source `budwood`: where volumes lie, what a job reads of them, and how its tasks read it."""
