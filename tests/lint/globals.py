"""Ranks are threads: the product has no mutable variable at namespace scope, no mutable static and no thread_local, but for
the rows of globals.txt (path, name, why).

A small reader of C++, not a parser: it follows braces and looks at the head of every statement. It cannot see a global that
is initialised with parentheses, `Type name(args);`, which reads like a function; we write braces.
"""

import re

import lint

TABLE = "tests/lint/globals.txt"
NOT_VARIABLE = re.compile(
    r"^(using|typedef|template|class|struct|enum|union|friend|static_assert|namespace|concept|requires|extern\s*\"|export|"
    r"return|public|private|protected|case|default|goto|delete|throw|if|for|while|switch|do|else|MS_\w+)\b")


def bare(head):
    """The head of a statement without template arguments, attributes and operator names."""
    head = re.sub(r"\[\[.*?\]\]", "", head, flags=re.S)
    head = re.sub(r"\b(public|private|protected)\s*:(?!:)", "", head)
    head = re.sub(r"\boperator\s*(\(\)|\[\]|[^\s\w(]+)", "operator_", head)
    while True:
        shorter = re.sub(r"<[^<>;{}]*>", "", head)
        if shorter == head:
            return " ".join(head.split())
        head = shorter


def declared_variable(head, in_class):
    """The name of the variable that the statement declares and whether it is constant; None if it declares none."""
    left = re.split(r"(?<![=!<>])=(?!=)", head)[0].strip()  # what stands before an initialiser
    initialised = left != head
    if NOT_VARIABLE.match(left) or not left:
        return None
    pointer = re.match(r"[\w:&* ]+\(\s*\*\s*(const\b\s*)?(\w+)\s*\)\s*\(", left)
    if pointer is not None:  # to a function
        return pointer.group(2), pointer.group(1) is not None
    if "(" in left and (in_class or initialised or not re.match(r"(static|thread_local)\b", left) or left.endswith(")")):
        return None  # a function, or `f(x) = default`
    match = re.search(r"([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$", left)
    words = left.split()
    if match is None or len(words) < 2:
        return None
    if re.search(r"\bconstexpr\b", left):
        return match.group(1), True
    kind = left[:match.start()]
    constant = re.search(r"\*\s*const\b[^*]*$", kind) if "*" in kind else re.search(r"\bconst\b", kind)
    return match.group(1), constant is not None


def statements(code):
    """(line, scope, head) of every statement; scope is namespace, type or body."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.M)
    scopes, head, start, line, depth = ["namespace"], "", 1, 1, 0
    for char in code:
        if char == "\n":
            line += 1
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        if scopes[-1] == "member":  # nothing in there is a statement of ours
            if char == "{":
                scopes.append("member")
            elif char == "}":
                scopes.pop()
        elif char == "{" and depth == 0:
            plain = bare(head)
            if re.match(r"(inline )?namespace\b|extern \"", plain):
                scopes.append("namespace")
            elif re.match(r"(template )?(typedef )?(class|struct|union|enum)\b", plain) and "(" not in plain:
                scopes.append("type")
            elif re.search(r"\)[^():]*:(?!:).*[\w>]$", plain):  # member{value} of a constructor: its body is still to come
                scopes.append("member")
                head += "()"
                continue  # the head goes on
            elif scopes[-1] != "body" and "(" not in plain or plain.endswith("=") or (
                    re.match(r"(static|thread_local|inline static)\b", plain) and "(" not in plain):
                yield start, scopes[-1], plain
                scopes.append("initialiser")
            else:
                scopes.append("body")
            head = ""
        elif char == "}" and depth == 0:
            closed = scopes.pop() if len(scopes) > 1 else "namespace"
            head = "} " if closed == "initialiser" else ""
        elif char == ";" and depth == 0:
            if head.strip() and not head.startswith("}"):
                yield start, scopes[-1], bare(head)
            head = ""
        else:
            if not head.strip() and not char.isspace():
                start = line
            head += char


def check(tree, _):
    allowed = {(path, name) for path, name, _ in lint.read_table(tree.root / TABLE, 3)}
    used = set()
    for path in tree.cxx(lint.PRODUCT):
        for line, scope, head in statements(lint.blank_comments(tree.text(path), strings=True)):
            lasting = re.search(r"\b(static|thread_local)\b", head)
            if scope == "initialiser" or (scope != "namespace" and not lasting):
                continue
            variable = declared_variable(head, scope == "type")
            if variable is None or variable[1]:
                continue
            if (path, variable[0]) in allowed:
                used.add((path, variable[0]))
            else:
                yield f"{path}:{line}: mutable {'static' if lasting else 'global'} '{variable[0]}': ranks are threads"
    for path, name in sorted(allowed - used):
        yield f"{TABLE}:1: {path} has no mutable '{name}' any more"


if __name__ == "__main__":
    lint.run(check, __doc__)
