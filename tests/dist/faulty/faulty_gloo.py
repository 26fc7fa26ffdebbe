"""A Gloo backend that misbehaves on rank 1, as FAULT in its environment says."""

import os
import signal
import time

from collbench.backends import Refused
from collbench.backends.gloo import Gloo


class FaultyGloo(Gloo):
    def __init__(self, job, place):
        fault = os.environ.get("FAULT", "") if place.rank == 1 else ""
        self._wrong = fault == "wrong"
        if fault == "refuse":
            raise Refused("no such algorithm")
        if fault == "hang_before_group":
            time.sleep(600)
        super().__init__(job, place)
        if fault == "hang":
            time.sleep(600)
        if fault == "hang_deaf":
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL})
            time.sleep(600)
        if fault == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit":
            os._exit(7)

    def read(self, memory, nbytes):
        data = super().read(memory, nbytes)
        if self._wrong:
            data = bytes([data[0] ^ 0x55]) + data[1:]
        return data
