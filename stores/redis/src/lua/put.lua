-- KEYS[1] board; ARGV: note's key, value, lifetime in ms, channel ('' to wake nobody)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[4] ~= '' then redis.call('PUBLISH', ARGV[4], 'request') end
local note = string.format('%.0f', now + ARGV[3]) .. ' ' .. ARGV[3] .. ' ' .. ARGV[2]
if redis.call('HSET', KEYS[1], ARGV[1], note) == 1 then
    -- There is one more: a good time to take off those that have outlived their lifetime.
    local notes = redis.call('HGETALL', KEYS[1])
    for i = 1, #notes, 2 do
        if tonumber(string.match(notes[i + 1], '^%d+') or 0) <= now then redis.call('HDEL', KEYS[1], notes[i]) end
    end
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
