# Completion of triglot for bash and zsh, written by `triglot completion`.
#
# _triglot_options COMMAND: its options; without COMMAND, the commands.
# _triglot_values COMMAND OPTION: what may follow the option; a number stands for a positional argument.
#   Words to choose from; or @file, @folder, @environment; @flag if no value follows. A last + allows several.
{tables}

# Set `names` to the environments of a suite, asked for once in each shell.
_triglot_suite() {
  local kept="_triglot_names_${1//[^a-zA-Z0-9]/_}"
  eval "names=\"\$$kept\""
  if [[ -z "$names" ]]; then
    names="$(triglot list "$1" 2>/dev/null)"
    eval "$kept=\"\$names\""
  fi
}

# Set `reply` to the candidates among words that begin with `cur`.
_triglot_among() {
  local word
  reply=()
  for word in $1; do
    [[ "$word" == "$cur"* ]] && reply+=("$word")
  done
}

# Take the words of a line up to the cursor; set `cur` to the last one, and `reply` to what may stand there,
# or `kind` to @file or @folder.
_triglot_find() {
  [[ -n "$ZSH_VERSION" ]] && emulate -L ksh
  local command="$2" word option="" position=0 several="" prefix="" values names
  local -a words
  words=("$@")
  kind="" reply=() cur="${words[$# - 1]}"
  if (( $# <= 2 )); then
    _triglot_among "$(_triglot_options "")"
    return
  fi
  # Which option the unfinished word belongs to: the last one, if it can take one more value.
  for word in "${words[@]:2:$(( $# - 3 ))}"; do
    if [[ "$word" == --* ]]; then
      option="$word" several="$(_triglot_values "$command" "$word")"
      [[ "$word" == *=* || "$several" == @flag ]] && option=""
    elif [[ -z "$option" ]]; then
      position=$((position + 1))
    elif [[ "$several" != *" +" ]]; then
      option=""
    fi
  done
  if [[ "$cur" == --*=* ]]; then
    option="${cur%%=*}" prefix="${cur%%=*}=" cur="${cur#*=}"
  elif [[ "$cur" == -* ]]; then
    _triglot_among "$(_triglot_options "$command")"
    return
  fi
  values="$(_triglot_values "$command" "${option:-$position}")"
  if [[ -z "$option$values" ]]; then # a positional argument may take several words
    values="$(_triglot_values "$command" 0)"
    [[ "$values" == *" +" ]] || return
  fi
  values="${values% +}"
  case "$values" in
    @file | @folder) kind="$values" ;;
    @environment*)
      _triglot_among "${values#@environment} {suites}"
      # One suite is left: its environments, so that no space ends the unfinished word.
      if [[ "$cur" == *:* || "${reply[*]}" == *: && ${#reply[@]} == 1 ]]; then
        [[ "$cur" == *:* ]] && names="${cur%%:*}" || names="${reply[0]%:}"
        _triglot_suite "$names"
        _triglot_among "$names"
      fi ;;
    *) _triglot_among "$values" ;;
  esac
  cur="$prefix$cur" reply=("${reply[@]/#/$prefix}")
}

if [[ -n "$ZSH_VERSION" ]]; then
  _triglot() {
    local kind cur
    local -a reply
    _triglot_find "${(@)words[1,CURRENT]}"
    case "$kind" in
      @file) _files ;;
      @folder) _files -/ ;;
      *) compadd -- "${reply[@]}" ;;
    esac
  }
  compdef _triglot triglot
else
  _triglot() {
    local kind cur done="" IFS=$' \t\n'
    local -a typed reply
    read -a typed <<< "${COMP_LINE:0:COMP_POINT}"
    [[ "${COMP_LINE:0:COMP_POINT}" == *[[:space:]] ]] && typed+=("")
    _triglot_find "${typed[@]}"
    # bash replaces only what stands after the last colon or equals sign of a word.
    [[ "$COMP_WORDBREAKS" == *:* ]] && done="${cur%"${cur##*[:=]}"}"
    IFS=$'\n'
    case "$kind" in
      @file) COMPREPLY=($(compgen -f -- "${cur#"$done"}")) ;;
      @folder) COMPREPLY=($(compgen -d -- "${cur#"$done"}")) ;;
      *) COMPREPLY=("${reply[@]#"$done"}") ;;
    esac
    [[ -n "$kind" ]] && compopt -o filenames
  }
  complete -F _triglot triglot
fi
