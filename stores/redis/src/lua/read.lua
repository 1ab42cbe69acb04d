-- Reads a seat. Returns the server's time (seconds, microseconds), record, nonce, time of the last write, and floor.
-- KEYS[1]: seat
local now = redis.call('TIME')
local seat = redis.call('HMGET', KEYS[1], 'record', 'nonce', 'at', 'floor')
if not seat[1] and not seat[4] and redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE Tenure did not write this hash')
end
return {now[1], now[2], seat[1], seat[2], seat[3], seat[4]}
