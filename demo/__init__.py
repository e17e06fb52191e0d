"""
The demonstration: a document through the store, with a worker killed half-way.
"""
