-- KEYS[1] seat, and its boards; ARGV: channel
local seat = redis.call('HMGET', KEYS[1], 'holder', 'floor')
local floor = seat[1] and string.match(seat[1], '%d+$') or seat[2]
-- Above the highest token there is none.
if floor == '9223372036854775807' then floor = nil end
redis.call('PUBLISH', ARGV[1], 'holder')
redis.call('DEL', unpack(KEYS))
if floor then redis.call('HSET', KEYS[1], 'floor', floor) end
return 1
