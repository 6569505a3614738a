"""`python -m freeenergy` is the program `freeenergy`."""

from .cli import main

if __name__ == "__main__":
    main()
