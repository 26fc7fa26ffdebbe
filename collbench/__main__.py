"""``python -m collbench``."""

from collbench.cli import main

main()
