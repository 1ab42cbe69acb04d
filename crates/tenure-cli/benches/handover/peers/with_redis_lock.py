"""Runs a command under a lock of python-redis-lock: URL CMD…"""

import subprocess
import sys

import redis
import redis_lock

with redis_lock.Lock(redis.Redis.from_url(sys.argv[1]), "bench", expire=3, auto_renewal=True):
    code = subprocess.call(sys.argv[2:])
sys.exit(code)
