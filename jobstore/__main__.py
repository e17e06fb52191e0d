"""
``python -m jobstore``: the command line.
"""

from jobstore.cli import main

if __name__ == "__main__":
    main()
