#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes the base of the device plugin's image: files of named Debian packages,
# of the release that this machine runs, since the program is linked there.
#   base.sh ARCH OUT CACHE    ARCH as dpkg names it; OUT is a new directory
# `make images` runs it. What apt remembers is in CACHE:
# this machine's own package lists and packages stay as they are.
set -eu
arch=$1 out=$2 cache=$3

# package, then the files that are taken of it, as patterns below the root or
# below usr. Beside them each gives its licence and its entry for scanners.
#
# libc6 is for the program and for NVIDIA's library that it loads; it loads
# libgcc_s itself when a thread is cancelled. There is no shell and no other
# program: nvidia-smi and nvidia-cuda-mps-control start from the driver's root,
# with the libraries there.
packages='
libc6          lib/*-linux-gnu/*.so* lib64/*.so* lib/ld-linux-*.so*
libgcc-s1      lib/*-linux-gnu/libgcc_s.so*
'

names=$(echo "$packages" | awk 'NF {print $1}')
mkdir -p "$out" "$cache/lists/partial" "$cache/archives/partial" "$cache/packages"
out=$(cd "$out" && pwd) cache=$(cd "$cache" && pwd)
apt() {
	apt-get -qq -o Dir::State::Lists="$cache/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$cache" \
		-o APT::Sandbox::User=root -o APT::Architecture="$arch" -o APT::Architectures="$arch" "$@"
}
apt update
cd "$cache/packages"
rm -f ./*.deb
# shellcheck disable=SC2086 # one word per package
apt download $names
# It has the licence of libgcc-s1, and gcc's version in its name.
gcc=$(dpkg-deb --field libgcc-s1_*.deb Depends | grep -o 'gcc-[0-9]*-base')
apt download "$gcc"
packages="$packages$gcc"

# Debian moved everything below usr; older packages still have their files beside it.
mkdir -p "$out/usr/bin" "$out/usr/lib" "$out/usr/lib64" "$out/var/lib/dpkg/status.d"
ln -s usr/bin "$out/bin"; ln -s usr/bin "$out/sbin"; ln -s bin "$out/usr/sbin"
ln -s usr/lib "$out/lib"; ln -s usr/lib64 "$out/lib64"
echo "$packages" | while read -r name patterns; do
	[ -n "$name" ] || continue
	deb=$(echo "$name"_*.deb)
	dpkg-deb --field "$deb" > "$out/var/lib/dpkg/status.d/$name"
	set -f
	members=
	for p in $patterns; do members="$members ./$p ./usr/$p"; done
	# tar complains about every pattern without a match; the last line looks at what matters.
	# shellcheck disable=SC2086
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$out" --keep-directory-symlink --no-recursion --wildcards --no-wildcards-match-slash \
		-f - $members "./usr/share/doc/$name" "./usr/share/doc/$name/copyright" 2>/dev/null || true
	set +f
	# The licence may be that of another package of the same source: then it is a link.
	[ -L "$out/usr/share/doc/$name" ] || [ -e "$out/usr/share/doc/$name/copyright" ] || { echo "base.sh: package $name gave nothing" >&2; exit 1; }
done
