# Runs in the sandbox: main.sh SECONDS SCRIPT ARGUMENT...
# Runs the script, then prints its status (or "late"), the end of its stderr and each recorded command line, each with its length.
seconds=$1
shift
timeout --kill-after=1 "$seconds" bash "$@" </dev/null >/dev/null 2>/run/trace/record/stderr
status=$?
if [ "$SECONDS" -ge "$seconds" ] && { [ $status = 124 ] || [ $status = 137 ]; }; then
  status=late
fi
echo "$status"
cd /run/trace/record || exit
tail -c 4000 stderr >end
for file in end call.*; do
  [ -f "$file" ] && wc -c <"$file" && cat "$file"
done
exit 0
