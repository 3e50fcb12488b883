#!/usr/bin/env bash
# The first process of a host: its mounts, and the parent of whom nobody else is.
#
#   init.sh NAME CPUS           with BED and UNIFIED set
set -euo pipefail
name=$1 cpus=$2
mount -t proc proc /proc
echo "$name" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/{bed,gangd,lock,munge,sshd,slurm}
mount --bind "$BED" /run/bed
# Launchers take the environment of one host to another. The names of sockets differ, because the
# hosts share the cgroups of version 1, in which daemons are known by their sockets.
for ((i = 1; i <= HOSTS; i++)); do
  [[ node$i == "$name" ]] || ln -s "$name.sock" "/run/gangd/node$i.sock"
done
for directory in /tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$directory"; done
for directory in /var/log /var/spool /var/lib/munge /etc/gangd; do
  [[ ! -d $directory ]] || mount -t tmpfs -o mode=755 tmpfs "$directory"
done
# The kernel refuses a second mount of cgroups on top of the first one.
umount -l "$UNIFIED"
mount -t cgroup2 cgroup2 "$UNIFIED"
echo "$cpus" >/run/online
mount --bind /run/online /sys/devices/system/cpu/online
echo "$name" >/run/hostname
mount --bind /run/hostname /etc/hostname
touch /run/is-up
# bash waits for whoever becomes its child.
trap : CHLD
while :; do
  sleep infinity &
  wait $! || true
done
