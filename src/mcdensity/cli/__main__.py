"""``python -m mcdensity.cli``."""

from mcdensity.cli import main

if __name__ == "__main__":
    main()
