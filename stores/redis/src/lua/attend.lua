-- KEYS[1] presence of a process; ARGV: lifetime in ms. Answers whether it was there.
local there = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return there
