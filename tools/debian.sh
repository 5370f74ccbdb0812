#!/usr/bin/env bash
# Builds the Debian packages, installs them into a fresh Debian 12 and tries them there.
#   tools/debian.sh build    build-deb/*.deb, by dpkg-buildpackage from what git has, and what lintian says of them
#   tools/debian.sh try      in build-deb/root, made by debootstrap: the README's quick start, and programs against the libraries;
#                            as root, and where /proc can be mounted
# Installs what it needs besides tools/deps.sh, all of it from Debian 12's main.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build-deb root=$PWD/build-deb/root
consumers=test/consumers

need() {
  local missing=()
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} = 0 ] && return
  local sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build() {
  need debhelper dpkg-dev lintian
  rm -rf "$out/kiln" "$out"/*.deb
  mkdir -p "$out/kiln"
  git ls-files -z | tar -c --null -T - | tar -x -C "$out/kiln"
  (cd "$out/kiln" && dpkg-buildpackage -us -uc -b) >"$out/build.log" 2>&1 || { tail -30 "$out/build.log" && exit 1; }
  lintian --allow-root --fail-on error,warning "$out"/kiln_*.changes
}

leave() {
  umount "$root/proc"
}

inside() {
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

make_root() {
  rm -rf "$root"
  debootstrap --variant=minbase bookworm "$root" >"$out/debootstrap.log"
  mount -t proc proc "$root/proc"
  trap leave EXIT
}

# A command kiln in front of the page's test, which runs that of the root, where the test's folder lies.
make_command() {
  mkdir -p "$out/bin"
  ln -sfn "$PWD/build/models" "$out/bin/models"
  cat >"$out/bin/kiln" <<END
#!/bin/sh
exec chroot "$root" /bin/sh -c 'cd "\$1" && shift && exec env KILN_CACHE_DIR= kiln "\$@"' sh "\${PWD#$root}" "\$@"
END
  chmod +x "$out/bin/kiln"
}

try_quick_start() {
  inside sh -euc 'apt-get install -y -qq --no-install-recommends /debs/libkiln1_*.deb /debs/libkiln-rt1_*.deb /debs/kiln_*.deb'
  inside kiln version
  make_command
  TMPDIR=$root/tmp python3 test/cli/pages.py "$out/bin/kiln" README.md
}

try_libraries() {
  inside sh -euc 'apt-get install -y -qq --no-install-recommends /debs/libkiln-dev_*.deb cmake g++ ninja-build pkg-config'
  cp -r $consumers "$root/consumers"
  inside sh -euc 'cd /consumers && kiln compile scale.tc --size N=4 -o m.so
    cc run.c $(pkg-config --cflags --libs kiln_rt) -o run && ./run m.so
    c++ compile.cpp $(pkg-config --cflags --libs kiln) -o compile && ./compile scale.tc
    cmake -G Ninja -B build && cmake --build build
    build/run m.so && build/run_static m.so && build/compile scale.tc && build/linked'
}

case ${1:-} in
build) build ;;
try)
  if [ "$(id -u)" != 0 ] || ! unshare --mount true; then
    echo "debian: not tried: a root of its own needs root, and mounts"
    exit 0
  fi
  need debootstrap
  make_root
  mkdir -p "$root/debs"
  cp "$out"/*.deb "$root/debs"
  inside apt-get update -qq
  try_quick_start
  try_libraries
  echo "debian: packages installed and tried"
  ;;
*) echo "usage: tools/debian.sh build|try" >&2 && exit 2 ;;
esac
