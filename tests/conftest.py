"""What holds for all tests."""

from __future__ import annotations

import os
import signal

#: Reports are as wide as the screen, which is the same wherever the tests run.
os.environ["COLUMNS"] = "100"


# Started in the background of a shell, this process ignores SIGINT, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
