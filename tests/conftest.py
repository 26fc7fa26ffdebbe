"""What every lane has in common."""

import signal

from hypothesis import settings

# Started in a shell's background the lane would ignore interrupts, and so would all it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that does other things too must not fail a property for being slow at it.
settings.register_profile("collbench", deadline=None, max_examples=50)
settings.load_profile("collbench")
