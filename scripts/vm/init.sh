#!/bin/sh
# The first and only service of the guest: carries out what lies in the shared folder, one command after the other.
# NUMBER.sh is a command; its output goes to NUMBER.out and NUMBER.err, and NUMBER.rc says that it has ended, and how.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root PYTHONPATH=/opt/kvbench
mounted() { # the initrd has moved here what it had
	mountpoint -q "$2" || mount -t "$1" "$1" "$2"
}
mounted proc /proc
mounted sysfs /sys
mounted devtmpfs /dev
mounted tmpfs /tmp
mounted tmpfs /run
ip link set lo up
/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add
udevadm settle
modprobe -a 9p 9pnet_virtio nvme
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /share
python3 -m zipfile -e /share/*.whl /opt/kvbench

cd /share
echo ready >ready
while :; do
	for command in [0-9]*.sh; do
		number=${command%.sh}
		[ -e "$command" ] && [ ! -e "$number.rc" ] || continue
		sh "$command" >"$number.out" 2>"$number.err" </dev/null
		echo $? >"$number.rc.new"
		mv "$number.rc.new" "$number.rc"
	done
	sleep 0.2
done
