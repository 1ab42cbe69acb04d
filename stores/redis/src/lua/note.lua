-- Writes or removes a note. Returns 1 if the note existed and had not expired, otherwise 0.
-- KEYS[1]: board; ARGV: key of the note, lifetime in ms ('0' removes it), value, channel ('' to publish nothing)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function lasts(note) return note and tonumber(string.match(note, '^%d+') or 0) > now end
local was = lasts(redis.call('HGET', KEYS[1], ARGV[1]))
if ARGV[2] == '0' then
    redis.call('HDEL', KEYS[1], ARGV[1])
else
    if ARGV[4] ~= '' then redis.call('PUBLISH', ARGV[4], 'request') end
    redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ARGV[2]) .. ' ' .. ARGV[3])
    if not was then
        -- The board grows by one note, so expired notes are removed now.
        local notes = redis.call('HGETALL', KEYS[1])
        for i = 1, #notes, 2 do
            if not lasts(notes[i + 1]) then redis.call('HDEL', KEYS[1], notes[i]) end
        end
    end
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
end
return was and 1 or 0
