-- Writes a seat on condition. Returns 1 if it was written, 0 if the condition does not hold.
-- KEYS[1]: seat; ARGV: field to compare ('nonce' or 'holder'), its expected value ('' for no seat), then the new
-- nonce, record and holder, and the channel.
local now = redis.call('TIME')
local seat = redis.call('HMGET', KEYS[1], ARGV[1], 'holder', 'floor')
if (seat[1] or '') ~= ARGV[2] then return 0 end
if ARGV[2] == '' and seat[3] then
    -- The seat was removed. Tokens are compared as texts, because numbers of Lua have only 53 bits.
    local token = string.match(ARGV[5], '%d+$')
    if #token < #seat[3] or #token == #seat[3] and token <= seat[3] then return 0 end
end
if seat[2] ~= ARGV[5] then
    -- A release says what a read of the seat would return, so the next leader need not read it.
    local is_release = string.sub(ARGV[5], 1, 1) == '-'
    -- This changes nothing. If the server refuses writes, the script ends here, before it publishes the release.
    if is_release and ARGV[2] ~= '' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
    redis.call('PUBLISH', ARGV[6], is_release and 'released ' .. ARGV[3] .. ' ' .. ARGV[4] or 'holder ' .. ARGV[5])
end
redis.call('HSET', KEYS[1], 'nonce', ARGV[3], 'record', ARGV[4], 'holder', ARGV[5], 'at', now[1] .. ' ' .. now[2])
return 1
