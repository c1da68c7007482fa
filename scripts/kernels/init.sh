#!/bin/busybox sh
# The first program of a guest (scripts/kernels): mounts the host's root, which cannot be written to, and a disk of the
# guest's own, runs COMMAND of the kernel's command line, and tells its status. ttyS0 has the kernel's messages, ttyS1
# what COMMAND prints, ttyS2 the status.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev

for module in /modules/*.ko; do
	insmod "$module" || echo "init: no $module"
done
for word in $(cat /proc/cmdline); do
	case $word in
	checkout=*) checkout=${word#*=} ;;
	esac
done

mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /root
while [ ! -b /dev/vda ]; do sleep 0.1; done
mount -t ext4 /dev/vda "/root$checkout/target"
for folder in tmp run var/tmp; do
	mount -t tmpfs none "/root/$folder"
done
mount --move /sys /root/sys
mount --move /dev /root/dev
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts none /root/dev/pts
mount -t tmpfs none /root/dev/shm
mount -t tracefs none /root/sys/kernel/tracing
mount -t bpf none /root/sys/fs/bpf
mount -t cgroup2 none /root/sys/fs/cgroup
ip link set lo up
stty -F /root/dev/ttyS1 -opost

mount --move /proc /root/proc
chroot /root /bin/sh "$checkout/target/command" </root/dev/null >/root/dev/ttyS1 2>&1
echo $? >/root/dev/ttyS2
sync
echo o >/root/proc/sysrq-trigger
sleep 60
