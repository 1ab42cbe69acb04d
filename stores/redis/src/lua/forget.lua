-- Removes a seat and its boards, and keeps the token of the seat as its floor.
-- KEYS[1]: seat; other KEYS: its boards; ARGV: channel
local seat = redis.call('HMGET', KEYS[1], 'holder', 'floor')
local floor = seat[1] and string.match(seat[1], '%d+$') or seat[2]
-- The highest possible token is no floor: no bid could exceed it.
if floor == '9223372036854775807' then floor = nil end
redis.call('PUBLISH', ARGV[1], 'holder')
redis.call('DEL', unpack(KEYS))
if floor then redis.call('HSET', KEYS[1], 'floor', floor) end
return 1
