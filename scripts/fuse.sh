#!/bin/sh
# Says what the mount lacks on this machine: the names of Debian packages, "pyfuse3" if only that is left to be built, or nothing.
# Quick, since the Makefile asks at every call: what it says is kept in .venv/ready, and set-up runs again when it changes.
cd "$(dirname "$0")/.." || exit 1

missing=
command -v fusermount3 >/dev/null || missing=fuse3

# pyfuse3 is built once and then needs libfuse alone: neither compiler nor headers. One that was built for a libfuse that is
# gone, or is another by now, counts as not built.
built() {
    library=$(echo .venv/lib/python3*/site-packages/pyfuse3/__init__.*.so)
    [ -e "$library" ] && ! ldd "$library" 2>/dev/null | grep -q 'not found'
}

if ! built; then
    python=.venv/bin/python
    [ -x "$python" ] || python=${PYTHON:-python3}
    if command -v pkg-config >/dev/null; then
        pkg-config --exists fuse3 || missing="$missing libfuse3-dev"
    else
        missing="$missing libfuse3-dev pkg-config"
    fi
    # A compiler without its C library's headers is none.
    echo '#include <limits.h>' | cc -E -x c -o /dev/null - 2>/dev/null || missing="$missing gcc libc6-dev"
    "$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
        missing="$missing $("$python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])' 2>/dev/null)"
    [ -n "$missing" ] || missing=pyfuse3
fi
# Unquoted: words with one space between them.
echo $missing
