-- KEYS[1] seat, and its boards; ARGV: channel
local seat = redis.call('HMGET', KEYS[1], 'holder', 'floor')
local floor = seat[1] and string.match(seat[1], '%d+$') or seat[2]
redis.call('PUBLISH', ARGV[1], 'holder')
redis.call('DEL', unpack(KEYS))
if floor then redis.call('HSET', KEYS[1], 'floor', floor) end
return 1
