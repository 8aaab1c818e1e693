"""`python -m roofmark`: the command line."""

from roofmark.cli import main

main()
