"""Who may include whom: a module includes itself and the modules that its line in libms/HOUSE/CMakeLists.txt names; these are of
core or of its own house, but for an EXTENSION in ops, which may use the engine; a folder of a module includes the module's own
files, itself and the folders listed before it; nothing includes tools; the product includes no tests."""

import re

import lint

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def modules(tree):
    """The modules that each module may include, the folders of each module in their order, and the house of each."""
    allowed, folders, houses, extensions = {}, {}, {}, set()
    for house in lint.HOUSES:
        text = re.sub(r"#[^\n]*", "", tree.text(f"libms/{house}/CMakeLists.txt"))
        for call in re.finditer(r"ms_module\(\s*(\w+)([^)]*)\)", text):
            module, rest = call.groups()
            depends = re.search(r"DEPENDS((?:\s+[a-z]\w*)*)", rest)
            allowed[module] = {module, *(depends.group(1).split() if depends else [])}
            listed = re.search(r"FOLDERS((?:\s+[a-z]\w*)*)", rest)
            folders[module] = ["", *(listed.group(1).split() if listed else [])]
            houses[module] = house
            if "EXTENSION" in rest.split():
                extensions.add(module)
    return allowed, folders, houses, extensions


def wrong_houses(allowed, houses, extensions):
    """Dependencies on a house that a module's own may not use."""
    for module, depends in sorted(allowed.items()):
        known = {"core", houses[module], *(["engine"] if module in extensions and houses[module] == "ops" else [])}
        for other in sorted(depends):
            if houses.get(other, "core") not in known:
                yield f"libms/{houses[module]}/CMakeLists.txt:1: module {module} depends on {other} of {houses[other]}"


def folder_of(path, order):
    """The position of a path (MODULE/FOLDER/FILE or MODULE/FILE) among its module's folders; None: it is in none of them."""
    parts = path.split("/")
    folder = parts[1] if len(parts) > 2 else ""
    return order.index(folder) if folder in order else None


def check(tree, _):
    allowed, folders, houses, extensions = modules(tree)
    yield from wrong_houses(allowed, houses, extensions)
    used = {module: set() for module in allowed}
    for path in tree.cxx():
        parts = path.split("/")
        product = path.startswith(lint.PRODUCT)
        house, module = parts[1:3] if parts[0] == "libms" and len(parts) > 3 else (None, None)
        if module is not None and houses.get(module) != house:
            yield f"{path}:1: {module} is not a module of libms/{house}/CMakeLists.txt"
            continue
        here = folder_of(path.removeprefix(f"libms/{house}/"), folders[module]) if module is not None else None
        for number, line in enumerate(lint.blank_comments(tree.text(path)).splitlines(), 1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            quote, target = match.groups()
            first = target.split("/")[0]
            if module is not None:
                used[module].add(first)
            where = f"{path}:{number}"
            if "tools/" in target:
                yield f"{where}: includes {target}: nothing includes tools"
            elif product and (first in ("tests", "gtest", "gmock") or "tests/" in target):
                yield f"{where}: includes {target}: the product includes no tests"
            elif parts[0] == "libms" and quote == '"' and (first == ".." or "/" not in target):
                yield f"{where}: includes \"{target}\": name it as \"module/file.h\""
            elif target == "net/if.h":  # the system's, not our module net's
                continue
            elif module == first and here is not None and (folder_of(target, folders[module]) or 0) > here:
                yield f"{where}: includes {target}, whose folder comes later in libms/{house}/CMakeLists.txt"
            elif module is not None and first in allowed and quote == "<":
                yield f"{where}: includes <{target}>: our own headers are in quotes"
            elif module is not None and first in allowed and first not in allowed[module]:
                yield f"{where}: module {module} includes {target}, but does not depend on {first}"
    for module, known in sorted(allowed.items()):
        for unused in sorted(known - used[module] - {module}):
            yield f"libms/{houses[module]}/CMakeLists.txt:1: module {module} depends on {unused}, but includes nothing of it"


if __name__ == "__main__":
    lint.run(check, __doc__)
