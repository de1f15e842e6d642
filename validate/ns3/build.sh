#!/bin/sh
# build.sh DIR: builds the ns-3 side of the comparison into DIR. Needs Debian's libns3-dev and g++.
set -eu
cd "$(dirname "$0")"
libs=
for module in applications core internet network point-to-point traffic-control; do libs="$libs -lns3-$module"; done
# shellcheck disable=SC2086 # a list of words
g++ -std=c++17 -O1 -o "$1/bottleneck" bottleneck.cc $libs
