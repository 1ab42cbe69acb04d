# Completion of tenure for fish: `tenure __complete` reads the line up to the cursor and replies what fits there.
function __tenure_complete
    set -l line (commandline -cp)
    set -l reply (COMP_LINE="$line" tenure __complete 2>/dev/null </dev/null)
    set -l kind (string split ' ' -- "$reply[1]")
    switch "$kind[1]"
        case words parts
            printf '%s\n' $reply[2..]
        case files
            # A path can follow a colon or an equals sign.
            set -l front (string match -r '^.*[:=]' -- (commandline -ct))
            set -l path (string replace -r '^.*[:=]' '' -- (commandline -ct))
            for file in (__fish_complete_path "$path")
                printf '%s%s\n' "$front" $file
            end
        case command arguments
            set -l words (commandline -opc)
            set -l at (math "$kind[2]" + 1)
            set -l rest
            for word in $words[$at..]
                set -a rest (string escape -- $word)
            end
            complete -C "$rest "(commandline -ct)
    end
end
complete -c tenure -f -a '(__tenure_complete)'
