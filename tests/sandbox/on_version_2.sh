#!/bin/bash
# Test the sandbox on a kernel that has version 2 of control groups only: user-mode Linux, over this machine's files, read-only.
#
#     tests/sandbox/on_version_2.sh PYTHON
#
# Needs root and `linux.uml` of Debian's user-mode-linux ($UML). Prints the results of pytest after the kernel's messages; they are
# the last lines. Left out is a test of page tables, for which programs there have too few addresses.
if [ $$ -ne 1 ]; then
    here=$(realpath "$0")
    exec "${UML:-linux.uml}" mem=1600M root=/dev/root rootfstype=hostfs rootflags=/ ro init="$here" con0=fd:0,fd:1 con=null \
        PYTHON="$(realpath -s "${1:-python3}")" MODULES="${MODULES:-/usr/lib/uml/modules}" < /dev/null
fi

exec > /dev/console 2>&1 < /dev/null
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
mount -t proc proc /proc
mount -t sysfs sys /sys
overlay=$(find "$MODULES" -name overlay.ko)
"$PYTHON" -c 'import ctypes, os, sys; ctypes.CDLL(None).syscall(313, os.open(sys.argv[1], 0), b"", 0)' "$overlay"   # finit_module
cd "$(dirname "$0")/../.." || exit 1
PYTHONPATH=$PWD
export PYTHONPATH
for folder in /run /tmp /dev/shm; do mkdir -p $folder; mount -t tmpfs none $folder; done
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/user.slice/shell.scope
for folder in /sys/fs/cgroup /sys/fs/cgroup/user.slice; do echo '+memory +pids' > $folder/cgroup.subtree_control; done
echo $$ > /sys/fs/cgroup/user.slice/shell.scope/cgroup.procs
"$PYTHON" -m pytest -p no:cacheprovider -q -n0 -rs --color no --tb short tests/sandbox -k 'not page_tables' 2>&1
ls -d /sys/fs/cgroup/user.slice/*/     # no group is left
echo o > /proc/sysrq-trigger
sleep 9
