"""``python -m paddock``."""

from paddock.cli.main import main

if __name__ == "__main__":
    main()
