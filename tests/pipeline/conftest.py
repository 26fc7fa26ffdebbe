import sys
from pathlib import Path

HERE = Path(__file__).parent
# fake_lab beside the tests, and the benchmarks, which are not installed with the package
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]
