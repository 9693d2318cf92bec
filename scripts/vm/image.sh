#!/bin/sh
# Makes the guest's kernel, initrd and root disk in DIR, for `make test-vm`. As root; about 1.5 GB and 4 minutes.
# Debian with the storage tools, and below /opt/kvbench what the wheel WHEEL depends on. The wheel itself comes at boot,
# so that the image is made anew only when this script or the dependencies change.
set -eu

dir=${1:?usage: image.sh DIR WHEEL}
wheel=${2:?usage: image.sh DIR WHEEL}
here=$(dirname "$(readlink -f "$0")")
suite=bookworm # Linux 6.1: NVMe/TCP, and no cachestat(2)
packages=linux-image-amd64,kmod,udev,util-linux,e2fsprogs,python3,nvme-cli,smartmontools,fio,pciutils,iproute2

state=$(cat "$0" "$here/init.sh" "$here/../../pyproject.toml" | sha256sum)
[ "$(cat "$dir/state" 2>/dev/null)" = "$state" ] && exit 0

mkdir -p "$dir"
rm -f "$dir/state"
root=$(mktemp -d "$dir/root.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT

mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$root"
# Wheels for the guest's Python, whatever Python runs here.
"${PYTHON:-python3}" -m pip install --quiet --no-compile --target "$root/opt/kvbench" --python-version 3.11 \
	--only-binary=:all: --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 "$wheel"
rm -rf "$root"/opt/kvbench/kvbench*
chroot "$root" python3 -m compileall -q /opt/kvbench >/dev/null || true # some files are no Python 3.11, and never imported
install -m 755 "$here/init.sh" "$root/init"
mkdir -p "$root/share"

cp "$root"/boot/vmlinuz-* "$dir/kernel"
cp "$root"/boot/initrd.img-* "$dir/initrd"
rm -f "$dir/root.ext4"
mke2fs -q -t ext4 -d "$root" "$dir/root.ext4" 3G
printf '%s\n' "$state" >"$dir/state"
