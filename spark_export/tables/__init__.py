"""Tables: a snapshot's pages become Arrow record batches. Nothing here knows of Spark, or of where pages come from."""
