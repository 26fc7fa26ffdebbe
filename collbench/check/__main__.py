"""``python -m collbench.check PROFILE``, one process a rank: under torchrun, mpirun or srun."""

import sys

from collbench.check.main import main
from collbench.front import run_module

sys.exit(run_module(main, sys.argv[1:]))
