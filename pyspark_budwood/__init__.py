"""Where Spark finds the data source `budwood`: it looks for a DefaultSource in top-level packages named pyspark_*."""

from budwood.spark_export.source.datasource import BudwoodDataSource as DefaultSource

__all__ = ["DefaultSource"]
