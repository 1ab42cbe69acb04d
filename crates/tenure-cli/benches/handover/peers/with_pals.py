"""Runs a command under an advisory lock of pals: URL CMD…"""

import subprocess
import sys

import pals

with pals.Locker("bench", sys.argv[1]).lock("bench", acquire_timeout=3_600_000):
    code = subprocess.call(sys.argv[2:])
sys.exit(code)
