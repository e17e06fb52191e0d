"""
A durable job store and queue on PostgreSQL.
"""
