"""
Measures the store: ``make bench``, or ``python -m benchmarks --help``.

Every figure stands beside a raw twin: the same work by the same SQL, through psycopg
alone or through pgbench, measured in the same run and in turns with it. What counts is
the ratio of the two: it means the same on a fast machine, a slow one and a busy one.
Absolute figures are printed with it, for orientation.
"""
