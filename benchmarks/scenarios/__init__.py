"""
The scenarios: tables that have grown, or that somebody keeps from being cleaned.
"""
