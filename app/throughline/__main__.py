"""Entry point of `python -m throughline`, by which a supervisor starts its child processes."""

from throughline.main import main

if __name__ == "__main__":
    main()
