"""`python -m runnel.server.cli`: the console script without its wrapper, for starting ourselves."""

from runnel.server.cli import main

main()
