-- KEYS[1] seat; ARGV: 'nonce' or 'holder', what that must be ('' for no seat), nonce, record, holder, channel
local now = redis.call('TIME')
local seat = redis.call('HMGET', KEYS[1], ARGV[1], 'holder')
if (seat[1] or '') ~= ARGV[2] then return 0 end
if seat[2] ~= ARGV[5] then redis.call('PUBLISH', ARGV[6], 'holder ' .. ARGV[5]) end
redis.call('HSET', KEYS[1], 'nonce', ARGV[3], 'record', ARGV[4], 'holder', ARGV[5], 'at', now[1] .. ' ' .. now[2])
return 1
