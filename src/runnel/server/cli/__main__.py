"""`python -m runnel.server.cli`: the console script as a module."""

from runnel.server.cli import main

main()
