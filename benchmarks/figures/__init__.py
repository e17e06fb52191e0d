"""
The figures: short measurements that together take a few minutes.
"""
