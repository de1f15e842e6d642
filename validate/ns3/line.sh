#!/bin/sh
# line.sh PROGRAM "CASE|WORDS": one run of ns-3, as CASE|NUMBERS.
set -eu
# shellcheck disable=SC2086 # words
numbers=$("$1" ${2#*|})
printf '%s|%s\n' "${2%%|*}" "$numbers"
