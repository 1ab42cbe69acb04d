-- KEYS[1] seat; ARGV: expected nonce ('' for no seat), nonce, record, holder, channel
local now = redis.call('TIME')
local seat = redis.call('HMGET', KEYS[1], 'nonce', 'holder')
if (seat[1] or '') ~= ARGV[1] then return 0 end
if seat[2] ~= ARGV[4] then redis.call('PUBLISH', ARGV[5], 'holder ' .. ARGV[4]) end
redis.call('HSET', KEYS[1], 'nonce', ARGV[2], 'record', ARGV[3], 'holder', ARGV[4], 'at', now[1] .. ' ' .. now[2])
return 1
