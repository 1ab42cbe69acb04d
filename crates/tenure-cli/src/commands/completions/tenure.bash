# Completion of tenure for bash: `tenure __complete` reads the line up to the cursor and replies what fits there.
_tenure() {
    local line=${COMP_LINE:0:COMP_POINT} kind at word
    # Bash has split the word under the cursor at colons, equals signs and quotes, and replaces only the last part, $2.
    local before=${line%"$2"} is_quoted=
    local front=${before##*[[:space:]]}
    [[ $front != *[\"\'] ]] || is_quoted=1 front=${front%?}
    COMPREPLY=()
    {
        read -r kind at
        while IFS=$'\t' read -r word _; do
            word=${word#"$front"}
            [[ $is_quoted ]] || printf -v word %q "$word"
            COMPREPLY+=("$word")
        done
    } < <(COMP_LINE=$line tenure __complete 2>/dev/null </dev/null)
    case $kind in
    parts) compopt -o nospace ;;
    files) compopt -o default ;;
    command)
        compopt -o default
        [[ $2 == */* ]] || mapfile -t COMPREPLY < <(compgen -c -- "$2" | sort -u)
        ;;
    arguments)
        # The completion of the command itself, if the package bash-completion is loaded.
        for ((at = 1; at < COMP_CWORD; at++)); do [[ ${COMP_WORDS[at]} != -- ]] || break; done
        if ((at < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
            _command_offset $((at + 1))
        else
            compopt -o default
        fi
        ;;
    esac
}
complete -F _tenure tenure
