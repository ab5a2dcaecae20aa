"""The driver of a pipeline in a pod: Spark takes the path of a file, in whose folder nothing else may be imported."""

import sys

from glassflow_dagster.driver.submitted import main

if __name__ == "__main__":
    sys.exit(main())
