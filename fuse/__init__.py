"""Files over sync: a home's volumes as a tree of ordinary files, mounted by pyfuse3 on trio, one process a home."""
