#!/usr/bin/env bash
# line.sh KERNEL "CASE|NAME=VALUE ...": one run of Linux in virtual time, as CASE|NAME=VALUE ...|NUMBERS: what init.sh prints, in one line.
# The kernel is build.sh's; the machine sees the host's files read only.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck disable=SC2086 # words
numbers=$("$1" mem=1536M root=/dev/root rootfstype=hostfs rootflags=/ ro init="$here/init.sh" \
    con=null con0=fd:3,fd:1 ssl=null time-travel=inf-cpu quiet ${2#*|} 3</dev/null 2>/dev/null |
    tr -d '\r' | grep -E '^(bytes|window|datagrams|drops|marks|wait|done)' | tr '\n' ' ') || true
# Datagrams have a table of their own; of connections what they waited is wanted.
case $numbers in *wait*done* | *datagrams*done*) ;; *) echo "Linux gave nothing, or not all, for ${2#*|}" >&2; exit 1 ;; esac
printf '%s|%s\n' "$2" "$numbers"
