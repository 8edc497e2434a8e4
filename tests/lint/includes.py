"""Who may include whom: a room includes itself and the rooms that libms/CMakeLists.txt says it depends on; nothing includes
tools; the product includes no tests."""

import re

import lint

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def rooms(tree):
    """room -> the rooms it may include."""
    text = re.sub(r"#[^\n]*", "", tree.text("libms/CMakeLists.txt"))
    allowed = {}
    for call in re.finditer(r"ms_module\(\s*(\w+)([^)]*)\)", text):
        depends = re.search(r"DEPENDS((?:\s+[a-z]\w*)*)", call.group(2))
        allowed[call.group(1)] = {call.group(1), *(depends.group(1).split() if depends else [])}
    return allowed


def check(tree, _):
    allowed = rooms(tree)
    for path in tree.cxx():
        parts = path.split("/")
        product = path.startswith(lint.PRODUCT)
        room = parts[1] if parts[0] == "libms" and len(parts) > 2 else None
        if room is not None and room not in allowed:
            yield f"{path}:1: libms/{room} is not a room of libms/CMakeLists.txt"
            continue
        for number, line in enumerate(lint.blank_comments(tree.text(path)).splitlines(), 1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            quote, target = match.groups()
            first = target.split("/")[0]
            where = f"{path}:{number}"
            if "tools/" in target:
                yield f"{where}: includes {target}: nothing includes tools"
            elif product and (first in ("tests", "gtest", "gmock") or "tests/" in target):
                yield f"{where}: includes {target}: the product includes no tests"
            elif parts[0] == "libms" and quote == '"' and (first == ".." or "/" not in target):
                yield f"{where}: includes \"{target}\": name it from libms, as \"room/file.h\""
            elif target == "net/if.h":  # the system's, not our room net's
                continue
            elif room is not None and first in allowed and quote == "<":
                yield f"{where}: includes <{target}>: our own headers are in quotes"
            elif room is not None and first in allowed and first not in allowed[room]:
                yield f"{where}: room {room} includes {target}, but does not depend on {first}"


if __name__ == "__main__":
    lint.run(check, __doc__)
