"""``python -m tenure.cli``: the same as ``tenure``, with this very interpreter."""

from tenure.cli import main

if __name__ == "__main__":
    main()
