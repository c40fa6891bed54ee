"""Export: tables of volumes into Parquet, Delta and Iceberg, once and only once."""
