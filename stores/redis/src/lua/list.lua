-- Lists the notes of a board that have not expired. Returns keys and values in turn.
-- KEYS[1]: board
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local notes, found = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #notes, 2 do
    local expires, value = string.match(notes[i + 1], '^(%d+) (.*)$')
    if expires and tonumber(expires) > now then
        table.insert(found, notes[i])
        table.insert(found, value)
    end
end
return found
