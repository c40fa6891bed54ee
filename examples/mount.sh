#!/bin/sh
# The mount: volumes as ordinary files, which any program reads and writes.
#
#     PATH="$PWD/.venv/bin:$PATH" sh examples/mount.sh
#
# Needs Linux with /dev/fuse and the command sqlite3. A store may be a directory, a bucket or a node; here it is a
# directory, and the two homes stand for two machines.
set -eu

folder=$(mktemp -d)
export BUDWOOD_REMOTE="file://$folder/store"
mkdir "$folder/a" "$folder/b"

finish() {
    # All of it is unmounted by then, unless something went wrong.
    for directory in "$folder/a" "$folder/b"; do
        budwood umount "$directory" || fusermount3 -u -z "$directory" || true
    done 2>/dev/null
    rm -rf --one-file-system "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Here: a database, by SQLite's own command, and a text file. Each commit is local, and pushed a second later; who unmounts
# need not wait for that.
budwood --home "$folder/here" mount --quiet "$folder/a"
sqlite3 "$folder/a/inventory" "CREATE TABLE parts (name TEXT PRIMARY KEY, count INT)"
sqlite3 "$folder/a/inventory" "INSERT INTO parts VALUES ('bolt', 40), ('nut', 60)"
mkdir "$folder/a/notes"
echo "count the bolts" >"$folder/a/notes/today"
budwood umount --push "$folder/a"

# There: the same files. What is read is fetched then.
budwood --home "$folder/there" mount --quiet "$folder/b"
(cd "$folder/b" && find . -type f | sort)
cat "$folder/b/notes/today"
sqlite3 "$folder/b/inventory" "UPDATE parts SET count = 35 WHERE name = 'bolt' RETURNING *"
budwood umount --push "$folder/b"
