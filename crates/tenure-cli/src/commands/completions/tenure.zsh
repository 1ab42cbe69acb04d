#compdef tenure
# Completion of tenure for zsh: `tenure __complete` reads the line up to the cursor and replies what fits there.
_tenure() {
    local -a lines values shown nospace
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX" reply
    lines=("${(@f)$(COMP_LINE=$line tenure __complete 2>/dev/null </dev/null)}")
    reply=$lines[1]
    shift lines
    case $reply in
    words | parts)
        [[ $reply == words ]] || nospace=(-S '')
        for line in $lines; do
            values+=("${line%%$'\t'*}")
            shown+=("${${line/$'\t'/  -- }%  -- }")
        done
        compadd -l "${nospace[@]}" -d shown -a values
        ;;
    files)
        compset -P '*[:=]'
        _files
        ;;
    command\ * | arguments\ *)
        shift ${reply#* } words
        ((CURRENT -= ${reply#* }))
        _normal
        ;;
    esac
}
if [[ $funcstack[1] == _tenure ]]; then _tenure "$@"; else compdef _tenure tenure; fi
