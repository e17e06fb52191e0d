"""
Other Python job queues on PostgreSQL, doing the same work for comparison.

Each file is a program for an environment of its own, in which that queue is installed
by its name on PyPI; none is a dependency of this project. See docs/performance.md.
"""
