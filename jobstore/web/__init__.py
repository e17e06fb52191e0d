"""
The page to look at: queues, jobs, failures, in a browser (extra ``jobstore[web]``).

Server-rendered, read-only unless told otherwise, and bounded: no page counts history.
It shows what a job is and where it is, never what is in it.
"""
