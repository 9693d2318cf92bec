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

# What the guest does first is changed in a disk that is there already.
install_init() {
	debugfs -R 'cat /init' "$dir/root.ext4" 2>/dev/null | cmp -s - "$here/init.sh" && return
	debugfs -w -f - "$dir/root.ext4" >"$dir/init.log" 2>&1 <<-END
		rm /init
		write $here/init.sh /init
		set_inode_field /init mode 0100755
	END
}

state=$({ cat "$0"; sed -n '/^dependencies/,/^]/p' "$here/../../pyproject.toml"; } | sha256sum)
if [ "$(cat "$dir/state" 2>/dev/null)" = "$state" ]; then
	install_init
	exit 0
fi

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
mkdir -p "$root/share"

cp "$root"/boot/vmlinuz-* "$dir/kernel"
cp "$root"/boot/initrd.img-* "$dir/initrd"
rm -f "$dir/root.ext4"
mke2fs -q -t ext4 -d "$root" "$dir/root.ext4" 3G
install_init
printf '%s\n' "$state" >"$dir/state"
