#!/bin/sh
# Sources compiled for one instruction set must define nothing that another source may define too: the linker keeps one
# copy of an inline function for the whole program, and an older processor would run into the newer one's instructions.
# usage: isa_symbols.sh NAMESPACE OBJECT...
namespace=$1
shift
[ $# -gt 0 ] || { echo "no objects given"; exit 1; }
# Weak and unique functions; V is data (an exception personality), the same for all.
foreign=$(nm -C "$@" | grep -E ' [Wu] ' | grep -v "ms::tensor::$namespace::")
[ -z "$foreign" ] || { echo "$foreign"; exit 1; }
