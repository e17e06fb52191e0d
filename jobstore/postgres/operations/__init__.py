"""
One plain function for each verb, over a connection; by phase of a job's life.

They execute statements and nothing else: no commits, no sleeps, no other I/O. The
stores decide about connections and transactions, and run the same functions in both
colours. Arguments were checked before.
"""
