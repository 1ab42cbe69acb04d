-- KEYS[1] board; ARGV: process, announcement. Answers how many there are now, if there is one more.
if redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
return redis.call('HLEN', KEYS[1])
