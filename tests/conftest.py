"""What holds for all tests."""

from __future__ import annotations

import signal

# Started in the background of a shell, this process ignores SIGINT, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
