#!/usr/bin/env bash
# Gathers the English text that Debian ships: manual pages about system calls, devices, files, concepts and administration,
# and fortunes if there are too few pages. Documents end with a line "%". The same pages give the same bytes.
# usage: english.sh OUTPUT
# Exit status: 0 done, 2 no such text was found.
set -euo pipefail
output=$1
enough=2000000 # bytes: a small model memorizes less text than this
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# manual_pages [ROOT]: the files of the packages manpages and manpages-dev, installed or below ROOT.
manual_pages() {
  if (($# == 0)) && command -v dpkg-query >/dev/null; then
    dpkg-query -L manpages manpages-dev 2>/dev/null
  else
    find "${1-}/usr/share/man" 2>/dev/null
  fi | { grep -E '/man/man[24578]/[^/]+$' || true; } | LC_ALL=C sort
}

# page_text FILE: the page as plain text: no overstrikes, no left margin, no running title.
page_text() {
  zcat -f "$1" | mandoc -T ascii -O width=78 2>/dev/null | LC_ALL=C sed -e 's/.\x08//g' -e 's/^ \{7\}//' -e '1,2d;$d'
  echo %
}

# pages_text [ROOT]: the text of all pages, without pages that only refer to another one.
pages_text() {
  local page
  manual_pages "$@" | while read -r page; do
    if [[ -f $page && ! -L $page && $(wc -c <"$page") -gt 256 ]]; then page_text "$page"; fi
  done
}

fortunes() {
  local file
  for file in /usr/share/games/fortunes/*; do
    case $file in *.dat | *.u8 | *ascii-art* | *translate-me*) ;; *) if [[ -f $file ]]; then cat "$file" && echo %; fi ;; esac
  done
}

too_little() { (($(wc -c <"$work/text") < enough)); }

pages_text >"$work/text"
if too_little && command -v apt-get >/dev/null; then
  # Container images install packages without their pages, so the pages are unpacked here.
  (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download manpages manpages-dev) || true
  for deb in "$work"/*.deb; do
    if [[ -e $deb ]]; then dpkg-deb --extract "$deb" "$work/pages"; fi
  done
  pages_text "$work/pages" >"$work/text"
fi
if too_little; then fortunes >>"$work/text"; fi
if [[ ! -s $work/text ]]; then
  echo "english.sh: no English text was found: neither manual pages nor fortunes are installed" >&2
  exit 2
fi
if too_little; then
  echo "english.sh: only $(wc -c <"$work/text") bytes of text were found; a model will memorize them" >&2
fi
mkdir -p "$(dirname "$output")"
cp "$work/text" "$output.part" && mv "$output.part" "$output"
