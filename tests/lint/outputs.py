"""What programs print passes base/print.h or the log, which escape text from outside: nothing else writes to standard output or
standard error."""

import re

import lint

# What is beneath print.h and the log, or ends the process.
WRITERS = ("libms/core/base/print.cpp", "libms/core/base/log.cpp", "libms/core/base/progress.cpp", "libms/core/base/error.cpp",
           "libms/core/base/unexpected.cpp")
WRITES = re.compile(r"\bfmt::v?print\s*\(|\b(printf|vprintf|puts|putchar)\s*\(|\bstd::(cout|cerr|clog)\b|\b(stdout|stderr)\s*[,)]")
FLUSHES = re.compile(r"\b(fflush|ferror|clearerr)\s*\(\s*(stdout|stderr)\s*\)")


def check(tree, _):
    for path in tree.cxx(("libms/", "tools/")):
        if path in WRITERS:
            continue
        for number, line in enumerate(lint.blank_comments(tree.text(path), strings=True).splitlines(), 1):
            found = WRITES.search(FLUSHES.sub("", line))
            if found:
                yield f"{path}:{number}: writes past base/print.h: {found.group().strip()}"


if __name__ == "__main__":
    lint.run(check, __doc__)
