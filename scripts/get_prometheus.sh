#!/usr/bin/env bash
# Unpacks Debian's package `prometheus` (prometheus and promtool) into a folder. Not installed: that would start a service.
# Its programs need nothing but libc; of the pages that Prometheus serves, tests use none.
set -euo pipefail

into=${1:?a folder}
if program=$(command -v promtool) && command -v prometheus >/dev/null; then
    mkdir -p "$into/usr/bin"
    ln -sf "$program" "$(command -v prometheus)" "$into/usr/bin/"
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
options=(-o Acquire::http::Timeout=20 -o Acquire::Retries=1 -o APT::Sandbox::User="$(id -un)" -qq)
timeout 120 apt-get "${options[@]}" download prometheus ||
    { timeout 120 apt-get "${options[@]}" update && timeout 120 apt-get "${options[@]}" download prometheus; }
dpkg-deb --extract prometheus_*.deb unpacked
cd "$OLDPWD"
rm -rf "$into"
mkdir -p "$(dirname "$into")"
cp -r "$work/unpacked" "$into"
"$into/usr/bin/promtool" --version
