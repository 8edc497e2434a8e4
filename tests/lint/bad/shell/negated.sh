#!/usr/bin/env bash
# shellcheck disable=SC2251 # it knows some of these, but not in a quoted script
set -e
# ! in a comment
! grep -q x /etc/passwd
found() { ! grep -q x /etc/passwd; } # its own status is what counts
found
