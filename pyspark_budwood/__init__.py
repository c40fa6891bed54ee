"""Where Spark finds the data source `budwood`: it looks for a DefaultSource in top-level packages named pyspark_*."""
