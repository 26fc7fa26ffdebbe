"""``python -m collbench.sweep``, one process a rank: under torchrun, mpirun or srun."""

import sys

from collbench.front import run_module
from collbench.sweep.main import main

sys.exit(run_module(main, sys.argv[1:]))
